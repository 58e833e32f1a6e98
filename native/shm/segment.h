// The mapping of one queue in this process: control lines read-write, the ring twice in a row, read-only for readers.
//
// Guarantee: references stay valid while the Segment lives; the ring is mapped when first asked for.
// Assumption: whoever made the descriptors has validated the header against the file; nothing here reads the header.
#pragma once

#include <cstdint>
#include <mutex>

#include "platform/mapping.h"
#include "shm/layout.h"

namespace aiospin::shm {

class Segment {
 public:
  // Keeps neither descriptor open beyond first use: they belong to the caller and must outlive this object.
  Segment(int fd, int ring_fd, std::uint32_t readers, std::uint64_t capacity);

  std::uint32_t readers() const noexcept { return readers_; }
  std::uint64_t capacity() const noexcept { return capacity_; }

  Control& control() const noexcept { return *control_; }
  ReaderLines& reader(std::uint32_t rank) const noexcept { return lines_[rank]; }
  Gate& gate(std::uint32_t rank) const noexcept { return gates_[rank]; }
  // Any word of the control area by its offset in the file; null when it lies outside or is not aligned.
  Word* word(std::uint64_t file_offset) const noexcept;

  const std::byte* ring_for_reading();
  std::byte* ring_for_writing();

 private:
  const int fd_, ring_fd_;
  const std::uint32_t readers_;
  const std::uint64_t capacity_;
  FileMapping area_;
  Control* control_;
  ReaderLines* lines_;
  Gate* gates_;
  std::mutex mapping_;
  FileMapping ring_ro_, ring_rw_;
};

}  // namespace aiospin::shm
