#include "platform/mapping.h"

#include <sys/mman.h>

#include <utility>

#include "platform/error.h"

namespace aiospin {

namespace {

int protection(Access access) { return access == Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE; }

void* map(void* where, std::size_t length, Access access, int fd, std::uint64_t offset) {
  // The file is reserved already; populating fills the page table, so that no first touch faults in the middle of a wait.
  const int flags = MAP_SHARED | MAP_POPULATE | (where == nullptr ? 0 : MAP_FIXED);
  return mmap(where, length, protection(access), flags, fd, static_cast<off_t>(offset));
}

}  // namespace

FileMapping FileMapping::once(int fd, std::uint64_t offset, std::size_t length, Access access) {
  void* base = map(nullptr, length, access, fd, offset);
  if (base == MAP_FAILED) throw_errno("mmap");
  return {static_cast<std::byte*>(base), length};
}

FileMapping FileMapping::twice(int fd, std::uint64_t offset, std::size_t length, Access access) {
  // Reserve the addresses first, so that nothing else can land between the two halves.
  void* reserved = mmap(nullptr, 2 * length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw_errno("mmap");
  FileMapping whole(static_cast<std::byte*>(reserved), 2 * length);
  for (std::byte* half : {whole.base_, whole.base_ + length}) {
    if (map(half, length, access, fd, offset) == MAP_FAILED) throw_errno("mmap");
  }
  return whole;
}

FileMapping::FileMapping(FileMapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), length_(std::exchange(other.length_, 0)) {}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(length_, other.length_);
  return *this;
}

FileMapping::~FileMapping() {
  if (base_ != nullptr) munmap(base_, length_);
}

}  // namespace aiospin
