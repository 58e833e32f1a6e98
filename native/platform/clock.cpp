#include "platform/clock.h"

namespace aiospin {

namespace {

double calibrate() noexcept {
  const std::uint64_t start_ns = monotonic_ns();
  const Ticks start = ticks();
  std::uint64_t now_ns;
  do {
    now_ns = monotonic_ns();
  } while (now_ns - start_ns < 500'000);
  return static_cast<double>(ticks() - start) * 1000.0 / static_cast<double>(now_ns - start_ns);
}

}  // namespace

double ticks_per_us() noexcept {
  static const double rate = calibrate();
  return rate;
}

}  // namespace aiospin
