#include "wait/bytes_watch.h"

#include <algorithm>
#include <atomic>

#include "cpu/breath.h"
#include "cpu/features.h"
#include "cpu/rung.h"

namespace aiospin::wait {

namespace {

using Byte = std::atomic<std::uint8_t>;

// The bytes that any store to is certain to end a doze. What arm64 tells is the largest that one may reserve, so no more
// than the smallest line in the field.
std::uintptr_t line_bytes() {
  constexpr unsigned kSmallest = 64;
  const unsigned told = cpu::features().smallest_line;
  return told == 0 ? kSmallest : std::min(told, kSmallest);
}

}  // namespace

BytesWatch::BytesWatch(const void* begin, std::size_t count)
    : begin_(reinterpret_cast<std::uintptr_t>(begin)),
      end_(begin_ + count),
      in_one_line_(begin_ / line_bytes() == (end_ - 1) / line_bytes()),
      seen_((end_ + 7) / 8 - begin_ / 8) {
  remember();
}

// Only bytes that are ours are read, although no aligned word reaches into another page.
std::uint64_t BytesWatch::at(std::size_t index) const noexcept {
  const std::uintptr_t word = (begin_ / 8 + index) * 8;
  if (begin_ <= word && word + 8 <= end_) {
    // sync:word acquire: what the storing side wrote before these bytes.
    return reinterpret_cast<const Word*>(word)->load(std::memory_order_acquire);
  }
  std::uint64_t ours = 0;
  for (std::uintptr_t byte = std::max(begin_, word); byte < std::min(end_, word + 8); ++byte) {
    // sync:word acquire: as above.
    const std::uint64_t value = reinterpret_cast<const Byte*>(byte)->load(std::memory_order_acquire);
    ours |= value << (byte - word) * 8;
  }
  return ours;
}

bool BytesWatch::changed() const noexcept {
  for (std::size_t index = 0; index < seen_.size(); ++index) {
    if (at(index) != seen_[index]) return true;
  }
  return false;
}

void BytesWatch::remember() noexcept {
  for (std::size_t index = 0; index < seen_.size(); ++index) seen_[index] = at(index);
}

bool BytesWatch::may_doze(Ticks now) const noexcept {
  return in_one_line_ && cpu::chosen().monitors() && conduct_.may_doze(now);
}

bool BytesWatch::wait(Ticks until) noexcept {
  const cpu::Rung& chosen = cpu::chosen();
  const cpu::Rung& breathing = chosen.monitors() ? cpu::breather() : chosen;
  const Word& line = *reinterpret_cast<const Word*>(begin_ & ~std::uintptr_t{7});
  const Word still{0};
  for (Ticks now = ticks();; now = ticks()) {
    const bool dozes = may_doze(now);
    // Armed before the look: a store before it is seen, and one after it ends the doze.
    if (dozes) chosen.arm(line);
    if (changed()) return true;
    if (now >= until) return false;
    if (dozes) {
      chosen.doze(until);
      if (changed()) {
        conduct_.ended_for_a_reason();
        return true;
      }
      conduct_.ended_for_nothing(now, ticks());
    } else {
      breathing.wait(still, 0, std::min(until, now + from_us(cpu::kLongestBreathUs)));
    }
  }
}

}  // namespace aiospin::wait
