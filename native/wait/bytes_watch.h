// Bytes that somebody stores to and nobody rings for, of any place and few enough to be watched whole.
//
// Guarantee: wait() returns soon after a byte differs from what it was at the last remember(), and never outlasts its
// bound by more than a grain of the rung. Other bytes of the same line end no wait. What the storing side wrote before
// it stored is visible after remember().
// Assumption: the bytes stay mapped; one thread at a time.
//
// A CPU monitors one line. Bytes that lie in one are watched by the chosen rung's monitor; those that straddle two, or
// have no monitor to watch them, are compared whole between breaths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/conduct.h"
#include "platform/clock.h"

namespace aiospin::wait {

class BytesWatch {
 public:
  // So many are compared in about the time of one breath.
  static constexpr std::size_t kMost = 4096;

  // At least one byte, at most kMost. They are remembered as they are now.
  BytesWatch(const void* begin, std::size_t count);

  bool changed() const noexcept;
  void remember() noexcept;
  // True when a byte has changed, which is not remembered yet.
  bool wait(Ticks until) noexcept;

 private:
  // The bytes of an aligned word that are ours, the others 0.
  std::uint64_t at(std::size_t index) const noexcept;
  bool may_doze(Ticks now) const noexcept;

  const std::uintptr_t begin_, end_;
  const bool in_one_line_;
  std::vector<std::uint64_t> seen_;  // the aligned words that hold the bytes, as at() tells them
  cpu::Conduct conduct_;
};

}  // namespace aiospin::wait
