// The slots between the released cursor and the next one, oldest first, each still held or already let go.
//
// Guarantee: `front()` is the least position still held; closing is O(1) for the oldest and O(log n) otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aiospin::queue {

class Window {
 public:
  bool empty() const noexcept { return held_ == 0; }
  std::uint64_t size() const noexcept { return held_; }  // slots still held
  std::uint64_t front() const noexcept { return entries_[head_].begin; }

  // Without memory for 16 bytes the process ends, as everywhere in this noexcept library.
  void open(std::uint64_t begin) {
    entries_.push_back({begin, true});
    ++held_;
  }

  // True when it was the oldest, that is, when front() has moved or the window is empty.
  bool close(std::uint64_t begin) noexcept {
    const auto found = std::lower_bound(entries_.begin() + static_cast<std::ptrdiff_t>(head_), entries_.end(), begin,
                                        [](const Entry& entry, std::uint64_t position) { return entry.begin < position; });
    found->held = false;
    --held_;
    const bool oldest = static_cast<std::size_t>(found - entries_.begin()) == head_;
    while (head_ < entries_.size() && !entries_[head_].held) ++head_;
    if (head_ == entries_.size()) {
      entries_.clear();
      head_ = 0;
    } else if (head_ >= 64 && head_ * 2 >= entries_.size()) {
      entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return oldest;
  }

 private:
  struct Entry {
    std::uint64_t begin;
    bool held;
  };
  std::vector<Entry> entries_;  // [0, head_) are done with
  std::size_t head_ = 0;
  std::uint64_t held_ = 0;
};

}  // namespace aiospin::queue
