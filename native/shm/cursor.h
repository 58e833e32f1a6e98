// The cursors: how bytes written in one process become readable in another.
//
// Each cursor has one writing process and only grows. The exchange is both halves of the protocol at once: it releases
// the bytes below it, and it is the full barrier that the doorbell's theorem needs (an exchange costs 6 ns where a
// store and a fence cost 10, and thread sanitizers understand it).
#pragma once

#include "shm/layout.h"

namespace aiospin::shm::cursor {

inline void advance(Word& cursor, std::uint64_t to) noexcept {
  // sync:cursor seq_cst: releases the slot bytes (writer) or the end of the last read (reader) to whoever acquires the
  // cursor, and orders this change before the load of the sleeper's epoch.
  cursor.exchange(to, std::memory_order_seq_cst);
}

inline std::uint64_t observe(const Word& cursor) noexcept {
  // sync:cursor acquire: what the other side did before its exchange is visible after this.
  return cursor.load(std::memory_order_acquire);
}

inline std::uint64_t look_again(const Word& cursor) noexcept {
  // sync:cursor seq_cst: the sleeper's second look, ordered after its epoch.
  return cursor.load(std::memory_order_seq_cst);
}

}  // namespace aiospin::shm::cursor
