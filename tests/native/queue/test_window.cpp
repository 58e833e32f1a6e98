// The window of held slots, against a plain model, in random orders of opening and closing.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "../sanitized.h"
#include "queue/window.h"

namespace {

using aiospin::queue::Window;

constexpr int kRounds = 50 / aiospin::rig::kSlowdown;

TEST_CASE("closing the oldest moves the front past everything already closed") {
  Window window;
  for (const std::uint64_t begin : {0, 64, 192, 256}) window.open(begin);
  CHECK_FALSE(window.close(64));
  CHECK(window.front() == 0);
  CHECK_FALSE(window.close(192));
  CHECK(window.close(0));
  CHECK(window.front() == 256);
  CHECK(window.size() == 1);
  CHECK(window.close(256));
  CHECK(window.empty());
}

TEST_CASE("random orders agree with a set") {
  std::mt19937 random(20);
  for (int round = 0; round < kRounds; ++round) {
    const unsigned opens = 3 + static_cast<unsigned>(round) % 5;  // in ten steps: few held, or ever more
    const bool mostly_oldest = round % 2 == 0;
    Window window;
    std::set<std::uint64_t> held;
    std::uint64_t next = 0;
    for (int step = 0; step < 2000; ++step) {
      if (held.empty() || random() % 10 < opens) {
        window.open(next);
        held.insert(next);
        next += 64 * (1 + random() % 5);
      } else {
        auto victim = held.begin();
        if (!mostly_oldest || random() % 4 == 0) std::advance(victim, random() % held.size());
        const bool oldest = victim == held.begin();
        REQUIRE(window.close(*victim) == oldest);
        held.erase(victim);
      }
      REQUIRE(window.size() == held.size());
      REQUIRE(window.empty() == held.empty());
      if (!held.empty()) REQUIRE(window.front() == *held.begin());
    }
  }
}

}  // namespace
