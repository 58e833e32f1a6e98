// memcpy, into memory as a queue has it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "floor/floor.h"
#include "platform/clock.h"
#include "platform/error.h"
#include "platform/fd.h"
#include "platform/mapping.h"

namespace aiospin::floor {

namespace {
constexpr std::size_t kHead = 64;  // a message has a head, which keeps the copies from starting on a page each
}

std::uint64_t copy(std::size_t count, std::size_t nbytes, std::size_t ring) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  ring = (std::max(ring, nbytes + kHead) + page - 1) / page * page;
  const Fd fd(memfd_create("aiospin-floor", MFD_CLOEXEC));
  if (fd.get() < 0) throw_errno("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(ring)) != 0) throw_errno("ftruncate");
  const FileMapping mapping = FileMapping::twice(fd.get(), 0, ring, Access::read_write);
  std::memset(mapping.data(), 0, 2 * ring);  // no page fault later, in either half
  const std::vector<char> source(nbytes, 7);
  std::size_t cursor = 0;
  std::uint64_t start = 0;
  const std::size_t warm_up = count / 10;
  for (std::size_t n = 0; n < count + warm_up; ++n) {
    if (n == warm_up) start = monotonic_ns();
    std::memcpy(mapping.data() + cursor + kHead, source.data(), nbytes);
    asm volatile("" ::: "memory");  // the copies stay
    cursor = (cursor + kHead + nbytes) % ring;
  }
  return monotonic_ns() - start;
}

}  // namespace aiospin::floor
