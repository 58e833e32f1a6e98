// The stages of one wait in the calling thread: watch with the rung, then sleep in the kernel.
//
// Guarantee: neither stage returns `true`/`ready` without a complete look, and neither outlasts its bound by more than
// one chunk of the rung.
#pragma once

#include <poll.h>

#include <csignal>
#include <cstdint>
#include <span>

#include "platform/clock.h"
#include "wait/watch.h"

namespace aiospin::wait {

// Watches until ready or until the tick `until`. True when ready.
bool monitor(const Watch& watch, Ticks until) noexcept;

enum class Woke : std::uint8_t { ready, bell, other, timeout, signal };

// Announces, looks again and sleeps on `descriptors`, of which the first is the bell: it is drained when it rang.
// `other`: another descriptor is readable. `timeout_ns` < 0 means no limit; `mask` is installed while asleep, atomically
// with the sleep, so that a signal that came since the caller blocked it still ends the sleep.
Woke park(Watch& watch, std::span<pollfd> descriptors, std::int64_t timeout_ns, const sigset_t* mask) noexcept;

}  // namespace aiospin::wait
