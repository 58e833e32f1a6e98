// The cache-line ping-pong.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "floor/floor.h"
#include "platform/cacheline.h"
#include "platform/clock.h"
#include "platform/error.h"

namespace aiospin::floor {
namespace {

struct alignas(kLine) Line {
  std::atomic<std::uint64_t> word{0};
};

// Pins the calling thread for as long as this lives.
class Pinned {
 public:
  Pinned(const cpu_set_t& allowed, int which) : allowed_(allowed) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || which-- != 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    }
  }
  ~Pinned() { pthread_setaffinity_np(pthread_self(), sizeof allowed_, &allowed_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t allowed_;
};

}  // namespace

std::vector<double> bounce(std::size_t chunks, std::size_t chunk) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw_errno("sched_getaffinity");
  if (CPU_COUNT(&allowed) < 2) throw std::runtime_error("needs two CPUs");
  Line ping, pong;
  std::thread echo([&] {
    const Pinned pinned(allowed, 1);
    for (std::uint64_t n = 1; n <= chunks * chunk; ++n) {
      // relaxed: nothing but the number itself is handed over, which is the least that can be
      while (ping.word.load(std::memory_order_relaxed) != n) {
      }
      // relaxed: as above
      pong.word.store(n, std::memory_order_relaxed);
    }
  });
  std::vector<double> took;
  took.reserve(chunks);
  {
    const Pinned pinned(allowed, 0);
    std::uint64_t n = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      const std::uint64_t start = monotonic_ns();
      for (std::size_t i = 0; i < chunk; ++i) {
        // relaxed: as above
        ping.word.store(++n, std::memory_order_relaxed);
        while (pong.word.load(std::memory_order_relaxed) != n) {
        }
      }
      took.push_back(static_cast<double>(monotonic_ns() - start) / (2.0 * static_cast<double>(chunk)));
    }
  }
  echo.join();
  return took;
}

}  // namespace aiospin::floor
