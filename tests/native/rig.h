// A queue in memory for tests: its segment and bells, and messages whose bytes prove themselves.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/error.h"
#include "platform/fd.h"
#include "platform/mapping.h"
#include "queue/reader.h"
#include "queue/writer.h"
#include "shm/doorbell.h"

namespace aiospin::rig {

// The least ring that this machine can map. A queue's is a multiple of kRingAlign; small ones fill faster.
inline const std::uint64_t kPageBytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));

// The same file again, through another description.
inline Fd reopened(int fd, int flags) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Fd again(open(path.c_str(), flags | O_CLOEXEC));
  if (again.get() < 0) throw_errno("open");
  return again;
}

// Both ends of a pipe that nobody need block on, behind one descriptor.
class Bell {
 public:
  Bell() {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) throw_errno("pipe2");
    const Fd read(ends[0]), write(ends[1]);
    both_ = reopened(read.get(), O_RDWR | O_NONBLOCK);
  }
  int get() const noexcept { return both_.get(); }

 private:
  Fd both_;
};

class Rig {
 public:
  explicit Rig(std::uint32_t readers = 1, std::uint64_t capacity = 4 * kPageBytes)
      : file_(memfd_create("rig", MFD_CLOEXEC)), bells_(readers + 1) {
    if (file_.get() < 0) throw_errno("memfd_create");
    length_ = shm::ring_offset(readers) + capacity;
    if (ftruncate(file_.get(), static_cast<off_t>(length_)) != 0) throw_errno("ftruncate");
    ring_file_ = reopened(file_.get(), O_RDONLY);
    whole_ = FileMapping::once(file_.get(), 0, length_, Access::read_write);
    segment_ = std::make_shared<shm::Segment>(file_.get(), ring_file_.get(), readers, capacity);
  }

  // The same bytes in a segment of its own, with bells that nobody has rung.
  Rig copy() const {
    Rig other(segment_->readers(), segment_->capacity());
    std::copy_n(whole_.data(), length_, other.whole_.data());
    return other;
  }

  shm::Segment& segment() noexcept { return *segment_; }
  // Everything that is shared; and of it, what comes before the ring and is in use.
  std::span<std::byte> bytes() const noexcept { return {whole_.data(), length_}; }
  std::span<std::byte> control_bytes() const noexcept {
    const std::uint64_t begin = shm::control_offset(segment_->readers());
    const std::uint64_t end = shm::gates_offset(segment_->readers()) + sizeof(shm::Gate) * segment_->readers();
    return bytes().subspan(begin, end - begin);
  }
  int bell(std::uint32_t role) const noexcept { return bells_[role].get(); }

  std::unique_ptr<queue::Writer> writer() {
    std::vector<int> bells;
    for (std::size_t role = 1; role < bells_.size(); ++role) bells.push_back(bells_[role].get());
    return std::make_unique<queue::Writer>(segment_, std::move(bells));
  }
  std::unique_ptr<queue::Reader> reader(std::uint32_t rank = 0, bool checksum = false) {
    return std::make_unique<queue::Reader>(segment_, rank, bells_[0].get(), checksum);
  }
  // What close() does for a rank: it stops gating, and whoever claims it later has to join.
  void leave(std::uint32_t rank) {
    Word& stay = segment_->reader(rank).park.stay;
    stay.store(stay.load() | 1);
    shm::doorbell::ring(bells_[0].get());
  }

 private:
  Fd file_, ring_file_;
  std::uint64_t length_ = 0;
  std::vector<Bell> bells_;
  FileMapping whole_;
  std::shared_ptr<shm::Segment> segment_;
};

// What byte `at` of message `sequence` must be.
inline std::byte content(std::uint64_t sequence, std::uint64_t at) noexcept {
  return static_cast<std::byte>((sequence * 131 + at * 7) & 0xff);
}

inline void fill(std::byte* bytes, std::uint64_t sequence, std::uint64_t from, std::uint64_t size) noexcept {
  for (std::uint64_t at = 0; at < size; ++at) bytes[at] = content(sequence, from + at);
}

// Writes message `sequence` of `size` bytes if there is room; does not flush.
inline queue::Room write(queue::Writer& writer, std::uint64_t size, bool checksum = false) {
  const queue::Room room = writer.reserve(size);
  if (room != queue::Room::ready) return room;
  fill(writer.slot(), writer.sequence(), 0, size);
  writer.commit(size, 0, size, checksum);
  return room;
}

// Writes and flushes one fragment of `size` bytes at `offset` of a message of `total` bytes, if there is room.
inline queue::Room write_fragment(queue::Writer& writer, std::uint64_t total, std::uint64_t offset,
                                  std::uint64_t size) {
  const queue::Room room = writer.reserve(size);
  if (room != queue::Room::ready) return room;
  fill(writer.slot(), writer.sequence(), offset, size);
  writer.commit(total, offset, size, false);
  writer.flush();
  return room;
}

inline bool intact(const queue::Slot& slot) noexcept {
  for (std::uint64_t at = 0; at < slot.size; ++at) {
    if (slot.bytes[at] != content(slot.sequence, at)) return false;
  }
  return true;
}

}  // namespace aiospin::rig
