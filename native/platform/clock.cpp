#include "platform/clock.h"

namespace aiospin {

namespace {

struct Instant {
  Ticks ticks;
  std::uint64_t ns;
};

// Both clocks at one moment. Being preempted between two readings would falsify the rate for the life of the process,
// so a pair counts only if it was read quickly; the quickest of several is the best that a busy machine offers.
Instant now() noexcept {
  Instant best{};
  Ticks quickest = ~Ticks{0};
  for (int i = 0; i < 16; ++i) {
    const Ticks before = ticks();
    const std::uint64_t ns = monotonic_ns();
    const Ticks after = ticks();
    if (after - before < quickest) {
      quickest = after - before;
      best = {before + quickest / 2, ns};
    }
  }
  return best;
}

double calibrate() noexcept {
  const Instant start = now();
  while (monotonic_ns() - start.ns < 500'000) {
  }
  const Instant end = now();
  return static_cast<double>(end.ticks - start.ticks) * 1000.0 / static_cast<double>(end.ns - start.ns);
}

}  // namespace

double ticks_per_us() noexcept {
  static const double rate = calibrate();
  return rate;
}

}  // namespace aiospin
