// Clock, mapping and descriptors: what everything above takes for granted.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <system_error>
#include <utility>

#include "platform/clock.h"
#include "platform/fd.h"
#include "platform/mapping.h"
#include "platform/membarrier.h"

namespace {

using namespace aiospin;
constexpr std::size_t kLength = 2 * 4096;

Fd memory() {
  Fd file(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), kLength) == 0);
  return file;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

TEST_CASE("ticks never run backwards and agree with the kernel's clock") {
  // The ticks enclose the kernel's time: a preemption between two readings can only make their span longer.
  const Ticks first = ticks();
  Ticks last = first;
  const std::uint64_t before_ns = monotonic_ns();
  while (monotonic_ns() - before_ns < 5'000'000) {
    const Ticks now = ticks();
    REQUIRE(now >= last);
    last = now;
  }
  last = ticks();
  CHECK(to_us(last - first) >= 4'500);
  CHECK(from_us(to_us(1'000'000)) == doctest::Approx(1'000'000).epsilon(0.001));
  CHECK(from_us(-1) == 0);
}

TEST_CASE("a mapping made twice shows every byte in both halves, and no range wraps") {
  const Fd file = memory();
  const FileMapping ring = FileMapping::twice(file.get(), 0, kLength, Access::read_write);
  std::byte* const base = ring.data();
  base[3] = std::byte{7};
  CHECK(base[kLength + 3] == std::byte{7});
  std::memset(base + kLength - 100, 0x5a, 200);
  CHECK(base[99] == std::byte{0x5a});
  CHECK(base[100] == std::byte{0});
}

TEST_CASE("two mappings of one file share their bytes") {
  const Fd file = memory();
  const FileMapping one = FileMapping::once(file.get(), 0, kLength, Access::read_write);
  const FileMapping other = FileMapping::twice(file.get(), 0, kLength, Access::read_only);
  one.data()[17] = std::byte{9};
  CHECK(other.data()[17] == std::byte{9});
  CHECK(other.data()[kLength + 17] == std::byte{9});
}

TEST_CASE("a mapping that cannot be made names the call") {
  CHECK_THROWS_AS(FileMapping::once(-1, 0, kLength, Access::read_only), std::system_error);
  CHECK_THROWS_AS(FileMapping::twice(-1, 0, kLength, Access::read_only), std::system_error);
}

TEST_CASE("moving a mapping leaves nothing behind") {
  const Fd file = memory();
  FileMapping first = FileMapping::once(file.get(), 0, kLength, Access::read_write);
  std::byte* const base = first.data();
  FileMapping second = std::move(first);
  CHECK(second.data() == base);
  CHECK(second);
  FileMapping third;
  CHECK_FALSE(third);
  third = std::move(second);
  CHECK(third.data() == base);
}

TEST_CASE("a descriptor closes itself once") {
  const Fd file = memory();
  const int copy = dup(file.get());
  {
    Fd owner(copy);
    Fd next(std::move(owner));
    CHECK(next.get() == copy);
    CHECK(is_open(copy));
  }
  CHECK_FALSE(is_open(copy));
}

TEST_CASE("the barrier works after enrolling, or both say that they do not") {
  CHECK(membarrier::enroll() == membarrier::everywhere());
  CHECK(membarrier::enroll() == membarrier::everywhere());
}

}  // namespace
