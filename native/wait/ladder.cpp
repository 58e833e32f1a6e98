#include "wait/ladder.h"

#include <algorithm>
#include <cerrno>

#include "cpu/rung.h"
#include "platform/probe.h"
#include "shm/doorbell.h"

namespace aiospin::wait {

namespace {
// The end of a queue, a drop or a join change other words than the one that is watched; they are looked at this often.
constexpr double kChunkUs = 50;
}  // namespace

bool monitor(const Watch& watch, Ticks until) noexcept {
  const Word& word = watch.word();
  std::uint64_t seen = watch.seen();
  const Ticks chunk = from_us(kChunkUs);
  const cpu::Rung& rung = watch.rung();
  for (Ticks now = ticks();; now = ticks()) {
    cpu::idle(rung, word, seen, std::min(until, now + chunk));
    if (watch.ready()) return true;
    if (ticks() >= until) return false;
    // relaxed: it changed, but not by enough; watch for the next change.
    seen = word.load(std::memory_order_relaxed);
  }
}

Woke park(Watch& watch, std::span<pollfd> descriptors, std::int64_t timeout_ns, const sigset_t* mask) noexcept {
  if (watch.announce()) return Woke::ready;
  timespec limit{static_cast<time_t>(timeout_ns / 1'000'000'000), static_cast<long>(timeout_ns % 1'000'000'000)};
  AIOSPIN_PROBE(sleep);
  const int n = ppoll(descriptors.data(), descriptors.size(), timeout_ns < 0 ? nullptr : &limit, mask);
  AIOSPIN_PROBE(woke);
  if (n < 0) return errno == EINTR ? Woke::signal : Woke::other;
  if (n == 0) return Woke::timeout;
  const bool rang = descriptors[0].revents != 0;
  if (rang) shm::doorbell::drain(descriptors[0].fd);
  return n > (rang ? 1 : 0) ? Woke::other : Woke::bell;
}

}  // namespace aiospin::wait
