// The epoch doorbell: how a side that sleeps is woken, and a side that does not is left alone.
//
// Theorem. A sleeper bumps its epoch with a full barrier, looks again at what it waits for, and only then sleeps on its
// bell. A waker makes its change visible with a full barrier, reads the epoch, and rings when the epoch is not the one it
// rang for last. Then no sleeper sleeps on through a change: in every interleaving either the second look sees the change,
// or the waker's load sees the new epoch (store buffering is excluded by the two barriers).
//
// Pattern.
//     sleeper                                     waker
//     announce(epoch)                             word.exchange(change)
//     look again: satisfied? do not sleep         e = epoch.load()
//     sleep until the bell has a byte; drain      if e != rung: ring(bell); rung = e
//
// The epoch only grows and is never cleared: a successor sleeper goes on from it, a successor waker starts with
// rung = 0 and rings once too often rather than once too seldom. A byte stays in the pipe until it is drained.
#pragma once

#include "platform/word.h"

namespace aiospin::shm::doorbell {

// Bumps a park epoch. Two threads of the one process that owns the epoch may both do so; none can undo the other's.
inline void announce(Word& epoch) noexcept {
  // sync:doorbell seq_cst: ordered before the sleeper's second look, against the waker's change -> load of the epoch.
  epoch.fetch_add(1, std::memory_order_seq_cst);
}

inline std::uint64_t heard(const Word& epoch) noexcept {
  // sync:doorbell seq_cst: ordered after the waker's exchange, so that either this sees the epoch or the sleeper sees the change.
  return epoch.load(std::memory_order_seq_cst);
}

// Writes one byte. A full pipe counts as rung: the sleeper has bytes to wake to.
void ring(int bell) noexcept;

// Empties the pipe; true when there was a byte.
bool drain(int bell) noexcept;

}  // namespace aiospin::shm::doorbell
