// A queue in memory for tests: its segment and bells, and messages whose bytes prove themselves.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "platform/error.h"
#include "platform/fd.h"
#include "queue/reader.h"
#include "queue/writer.h"

namespace aiospin::rig {

// Both ends of a pipe that nobody need block on.
class Bell {
 public:
  Bell() {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) throw_errno("pipe2");
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
    const std::string path = "/proc/self/fd/" + std::to_string(ends[0]);
    both_ = Fd(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (both_.get() < 0) throw_errno("open");
  }
  int get() const noexcept { return both_.get(); }

 private:
  Fd read_, write_, both_;
};

class Rig {
 public:
  explicit Rig(std::uint32_t readers = 1, std::uint64_t capacity = 4 * shm::kPage)
      : file_(memfd_create("rig", MFD_CLOEXEC)), bells_(readers + 1) {
    if (file_.get() < 0) throw_errno("memfd_create");
    if (ftruncate(file_.get(), static_cast<off_t>(shm::ring_offset(readers) + capacity)) != 0) throw_errno("ftruncate");
    segment_ = std::make_shared<shm::Segment>(file_.get(), file_.get(), readers, capacity);
  }

  shm::Segment& segment() noexcept { return *segment_; }
  int bell(std::uint32_t role) const noexcept { return bells_[role].get(); }

  std::unique_ptr<queue::Writer> writer() {
    std::vector<int> bells;
    for (std::size_t role = 1; role < bells_.size(); ++role) bells.push_back(bells_[role].get());
    return std::make_unique<queue::Writer>(segment_, std::move(bells));
  }
  std::unique_ptr<queue::Reader> reader(std::uint32_t rank = 0, bool checksum = false) {
    return std::make_unique<queue::Reader>(segment_, rank, bells_[0].get(), checksum);
  }

 private:
  Fd file_;
  std::vector<Bell> bells_;
  std::shared_ptr<shm::Segment> segment_;
};

// What byte `at` of message `sequence` must be.
inline std::byte content(std::uint64_t sequence, std::uint64_t at) noexcept {
  return static_cast<std::byte>((sequence * 131 + at * 7) & 0xff);
}

// Writes message `sequence` of `size` bytes if there is room; does not flush.
inline queue::Room write(queue::Writer& writer, std::uint64_t size, bool checksum = false) {
  const queue::Room room = writer.reserve(size);
  if (room != queue::Room::ready) return room;
  for (std::uint64_t at = 0; at < size; ++at) writer.slot()[at] = content(writer.sequence(), at);
  writer.commit(size, 0, size, checksum);
  return room;
}

inline bool intact(const queue::Slot& slot) noexcept {
  for (std::uint64_t at = 0; at < slot.size; ++at) {
    if (slot.bytes[at] != content(slot.sequence, at)) return false;
  }
  return true;
}

}  // namespace aiospin::rig
