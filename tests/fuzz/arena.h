// A segment to damage: made once, and as good as new before each execution.
//
// Guarantee: after reset() every shared byte is zero, as in a segment just created, so an execution depends on nothing
// that came before it.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../native/rig.h"

namespace aiospin::fuzz {

class Arena {
 public:
  Arena(std::uint32_t readers, std::uint64_t capacity) : rig_(readers, capacity) {
    segment_ = &rig_.segment();
    ring_ = segment_->ring_for_writing();
    reading_ = segment_->ring_for_reading();
    for (std::uint32_t role = 0; role <= readers; ++role) fcntl(rig_.bell(role), F_SETPIPE_SZ, 4096);
  }

  void reset() noexcept {
    std::ranges::fill(rig_.control_bytes(), std::byte{0});
    std::fill_n(ring_, capacity(), std::byte{0});
  }

  shm::Segment& segment() const noexcept { return *segment_; }
  std::uint32_t readers() const noexcept { return segment_->readers(); }
  std::uint64_t capacity() const noexcept { return segment_->capacity(); }
  std::byte* ring() const noexcept { return ring_; }                // for writing, twice the capacity long
  const std::byte* reading() const noexcept { return reading_; }    // the same for reading
  std::span<std::byte> control_bytes() const noexcept { return rig_.control_bytes(); }
  int bell(std::uint32_t role) const noexcept { return rig_.bell(role); }
  rig::Rig& rig() noexcept { return rig_; }

 private:
  rig::Rig rig_;
  shm::Segment* segment_;
  std::byte* ring_;
  const std::byte* reading_;
};

}  // namespace aiospin::fuzz
