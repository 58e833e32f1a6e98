#include "shm/segment.h"

namespace aiospin::shm {

namespace {

template <typename T>
T* at(std::byte* base, std::uint64_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

}  // namespace

Segment::Segment(int fd, int ring_fd, std::uint32_t readers, std::uint64_t capacity)
    : fd_(fd),
      ring_fd_(ring_fd),
      readers_(readers),
      capacity_(capacity),
      area_(FileMapping::once(fd, 0, ring_offset(readers), Access::read_write)),
      control_(at<Control>(area_.data(), control_offset(readers))),
      lines_(at<ReaderLines>(area_.data(), control_offset(readers) + sizeof(Control))),
      gates_(at<Gate>(area_.data(), gates_offset(readers))) {}

Word* Segment::word(std::uint64_t file_offset) const noexcept {
  if (file_offset % sizeof(Word) != 0 || file_offset < control_offset(readers_) ||
      file_offset > ring_offset(readers_) - sizeof(Word)) {
    return nullptr;
  }
  return at<Word>(area_.data(), file_offset);
}

const std::byte* Segment::ring_for_reading() {
  const std::lock_guard hold(mapping_);
  if (!ring_ro_) ring_ro_ = FileMapping::twice(ring_fd_, ring_offset(readers_), capacity_, Access::read_only);
  return ring_ro_.data();
}

std::byte* Segment::ring_for_writing() {
  const std::lock_guard hold(mapping_);
  if (!ring_rw_) ring_rw_ = FileMapping::twice(fd_, ring_offset(readers_), capacity_, Access::read_write);
  return ring_rw_.data();
}

}  // namespace aiospin::shm
