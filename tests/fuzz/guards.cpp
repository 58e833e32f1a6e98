// Puts memory that nobody may touch around every mapping that the library makes, so that a read one byte outside faults;
// and refuses allocations that only damage can ask for, as a machine without that much memory would.
//
// The linker sends the calls here (--wrap=mmap and so on). A mapping whose address the kernel chooses gets kGuardBytes
// of PROT_NONE on both sides; one at a fixed address lies in such a mapping already.
#include <sys/mman.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>

namespace {
constexpr std::size_t kGuardBytes = std::size_t{1} << 20;
constexpr std::size_t kLargestAllocation = std::size_t{1} << 26;
}  // namespace

extern "C" {

void* __real_mmap(void* where, std::size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* where, std::size_t length);
void* __real_malloc(std::size_t size);

void* __wrap_mmap(void* where, std::size_t length, int protection, int flags, int fd, off_t offset) {
  if (where != nullptr) return __real_mmap(where, length, protection, flags, fd, offset);
  void* const whole = __real_mmap(nullptr, length + 2 * kGuardBytes, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return MAP_FAILED;
  std::byte* const inside = static_cast<std::byte*>(whole) + kGuardBytes;
  void* const mapped = __real_mmap(inside, length, protection, flags | MAP_FIXED, fd, offset);
  if (mapped == MAP_FAILED) __real_munmap(whole, length + 2 * kGuardBytes);
  return mapped;
}

int __wrap_munmap(void* where, std::size_t length) {
  return __real_munmap(static_cast<std::byte*>(where) - kGuardBytes, length + 2 * kGuardBytes);
}

void* __wrap_malloc(std::size_t size) {
  if (size <= kLargestAllocation) return __real_malloc(size);
  errno = ENOMEM;
  return nullptr;
}

}  // extern "C"
