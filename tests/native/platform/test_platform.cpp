// Clock, mapping and descriptors: what everything above takes for granted.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "../forked.h"
#include "platform/clock.h"
#include "platform/copy.h"
#include "platform/fd.h"
#include "platform/mapping.h"
#include "platform/membarrier.h"
#include "platform/run_delay.h"

namespace {

using namespace aiospin;
const std::size_t kLength = 2 * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

Fd memory() {
  Fd file(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), static_cast<off_t>(kLength)) == 0);
  return file;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

TEST_CASE("what is copied past the caches is the same, from and to any address, and touches nothing else") {
  constexpr std::size_t kRoom = 1024;
  std::byte from[kRoom];
  for (std::size_t i = 0; i < kRoom; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::size_t n : {0, 1, 63, 64, 65, 127, 128, 200, 640}) {
    for (std::size_t to_at = 1; to_at < 70; to_at += 3) {
      for (std::size_t from_at = 0; from_at < 70; from_at += 11) {
        std::byte to[kRoom] = {};
        copy_past_cache(to + to_at, from + from_at, n);
        REQUIRE(std::memcmp(to + to_at, from + from_at, n) == 0);
        for (std::size_t i = 0; i < kRoom; ++i) {
          if (i < to_at || i >= to_at + n) REQUIRE(to[i] == std::byte{0});
        }
      }
    }
  }
}

TEST_CASE("there is a shared cache") { CHECK(shared_cache() >= 64 * 1024); }

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

TEST_CASE("run delay is counted per thread, never runs backwards, and survives a fork") {
  std::uint64_t last = run_delay_ns();
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t now = run_delay_ns();
    REQUIRE(now >= last);
    last = now;
  }
  // The child's descriptor is its own: the parent's shows the parent's thread, which stands still in waitpid().
  CHECK(rig::forked([&] {
          const std::uint64_t fresh = run_delay_ns();
          return run_delay_ns() >= fresh ? 0 : 1;
        }) == 0);
  CHECK(run_delay_ns() >= last);
  // Threads come and go without leaving descriptors behind.
  const int lowest = dup(0);
  for (int i = 0; i < 20; ++i) std::thread([] { run_delay_ns(); }).join();
  const int again = dup(0);
  CHECK(again == lowest + 1);
  close(again);
  close(lowest);
}

TEST_CASE("the barrier works after enrolling, or both say that they do not") {
  CHECK(membarrier::enroll() == membarrier::everywhere());
  CHECK(membarrier::enroll() == membarrier::everywhere());
}

}  // namespace
