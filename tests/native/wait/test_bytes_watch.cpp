// Bytes of any place: which changes end a wait, which do not, and what the CPU is asked to do meanwhile.
#include "wait/bytes_watch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cpu/rung.h"

namespace {

using namespace aiospin;
using wait::BytesWatch;

struct alignas(4096) Page {
  std::atomic<std::uint8_t> bytes[8192] = {};
};

// A monitor whose halves the test plays, chosen for as long as this lives.
struct Staged {
  static inline std::function<void()> armed, dozed;
  static inline unsigned arms, dozes;

  static std::string refusal() { return ""; }
  static cpu::Ended wait(const Word&, std::uint64_t, Ticks) noexcept { return cpu::Ended::empty; }
  static void arm(const Word&) noexcept {
    ++arms;
    if (armed) armed();
  }
  static void doze(Ticks) noexcept {
    ++dozes;
    if (dozed) dozed();
  }

  Staged() {
    armed = dozed = nullptr;
    arms = dozes = 0;
    cpu::choose(rung);
  }
  ~Staged() { cpu::choose(before); }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  const cpu::Rung rung{"staged", refusal, wait, arm, doze};
  const cpu::Rung& before = cpu::chosen();
};

Ticks soon() { return ticks() + from_us(200); }
Ticks late() { return ticks() + from_us(60e6); }

TEST_CASE("every byte is watched, and none beside them, wherever they lie") {
  static Page page;
  for (const std::size_t offset : {0u, 3u, 8u, 61u, 4090u}) {
    for (const std::size_t length : {1u, 2u, 5u, 8u, 9u, 16u, 67u, 130u}) {
      BytesWatch watch(&page.bytes[offset], length);
      const std::size_t first = offset < 9 ? 0 : offset - 9;
      for (std::size_t at = first; at < offset + length + 9; ++at) {
        page.bytes[at].fetch_xor(0x80);
        const bool ours = at >= offset && at < offset + length;
        CHECK(watch.changed() == ours);
        CHECK(watch.wait(ours ? late() : ticks()) == ours);
        watch.remember();
        CHECK_FALSE(watch.changed());
      }
    }
  }
}

TEST_CASE("the bounds of a page are its own") {
  static Page page;
  BytesWatch watch(&page.bytes[0], BytesWatch::kMost);
  page.bytes[BytesWatch::kMost].store(1);
  CHECK_FALSE(watch.changed());
  page.bytes[BytesWatch::kMost - 1].store(1);
  CHECK(watch.changed());
}

TEST_CASE("a wait lasts its time when nothing changes") {
  static Page page;
  for (const std::size_t offset : {0u, 60u}) {  // in one line, in two
    BytesWatch watch(&page.bytes[offset], 8);
    const Ticks until = soon();
    CHECK_FALSE(watch.wait(until));
    CHECK(ticks() >= until);
  }
}

TEST_CASE("a store by another thread ends it") {
  static Page page;
  for (const std::size_t offset : {0u, 60u, 1001u}) {
    BytesWatch watch(&page.bytes[offset], 8);
    std::thread other([&] { page.bytes[offset + 7].fetch_add(1); });
    CHECK(watch.wait(late()));
    other.join();
  }
}

TEST_CASE("a store while the monitor is being armed is seen before the doze") {
  static Page page;
  const Staged staged;
  BytesWatch watch(&page.bytes[16], 3);
  Staged::armed = [] { page.bytes[18].fetch_add(1); };
  CHECK(watch.wait(late()));
  CHECK(Staged::arms == 1);
  CHECK(Staged::dozes == 0);
}

TEST_CASE("a store during the doze ends the wait, one to a neighbour on the line does not") {
  static Page page;
  const Staged staged;
  BytesWatch watch(&page.bytes[16], 3);
  Staged::dozed = [] { page.bytes[Staged::dozes < 3 ? 19 : 16].fetch_add(1); };
  CHECK(watch.wait(late()));
  CHECK(Staged::dozes == 3);
  CHECK(Staged::arms == 3);
}

TEST_CASE("bytes in two lines are not left to a monitor of one") {
  static Page page;
  const Staged staged;
  BytesWatch watch(&page.bytes[60], 8);
  CHECK_FALSE(watch.wait(soon()));
  CHECK(Staged::arms == 0);
}

TEST_CASE("dozes that come back at once for nothing are given up for a while") {
  static Page page;
  const Staged staged;
  BytesWatch watch(&page.bytes[0], 8);
  CHECK_FALSE(watch.wait(ticks() + from_us(2000)));
  // Sixteen in a row that took less than 20 us each end it; an interruption in between starts the count anew, and there is
  // time for a hundred. Without an end there would be tens of thousands.
  CHECK(Staged::dozes <= 16 * 101);
}

}  // namespace
