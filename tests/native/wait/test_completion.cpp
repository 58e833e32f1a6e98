// Tokens on their way to a loop: none is left behind a loop that sleeps, none comes twice, all arrive in order.
#include "wait/completion.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "../sanitized.h"
#include "platform/clock.h"

namespace {

using namespace aiospin;
using wait::Completion;
using wait::Token;

bool awake(const Completion& completion, int timeout_ms = 0) {
  pollfd wake{completion.fileno(), POLLIN, 0};
  return poll(&wake, 1, timeout_ms) == 1;
}

TEST_CASE("a token wakes the loop until it is popped") {
  Completion completion;
  CHECK((fcntl(completion.fileno(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(completion.fileno(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK_FALSE(awake(completion));
  CHECK(completion.pop().empty());
  for (int again = 0; again < 3; ++again) {
    completion.push(7);
    completion.push(8);
    CHECK(awake(completion));
    CHECK(completion.pop() == std::vector<Token>{7, 8});
    CHECK_FALSE(awake(completion));
    CHECK(completion.pop().empty());
  }
}

// Pushers go through bursts and pauses, so that tokens come before, between and after the loop's drain and pop.
void flood(std::size_t threads, std::size_t each, unsigned pause_us, bool eager) {
  Completion completion;
  std::vector<std::thread> pushers;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    pushers.emplace_back([&, thread] {
      std::minstd_rand random(static_cast<unsigned>(thread + 1));
      for (std::size_t i = 0; i < each; ++i) {
        completion.push(thread * each + i);
        if (pause_us == 0 || random() % 8 != 0) continue;
        const Ticks until = ticks() + from_us(static_cast<double>(random() % pause_us));
        while (ticks() < until) {
        }
      }
    });
  }
  std::vector<std::size_t> next(threads);
  for (std::size_t popped = 0; popped < threads * each;) {
    // A token left behind makes this the watchdog's. An eager loop pops without having been woken, as one does whose
    // other events keep it busy.
    if (!eager) REQUIRE(awake(completion, 20'000));
    for (const Token token : completion.pop()) {
      REQUIRE(token % each == next[token / each]++);
      ++popped;
    }
  }
  for (std::thread& pusher : pushers) pusher.join();
  CHECK(completion.pop().empty());
}

TEST_CASE("no token is left behind a loop that sleeps") {
  flood(1, 200'000 / rig::kSlowdown, 0, false);
  flood(3, 60'000 / rig::kSlowdown, 0, false);
  flood(2, 40'000 / rig::kSlowdown, 30, false);
}

TEST_CASE("nor behind one that pops before it is woken") {
  flood(2, 100'000 / rig::kSlowdown, 0, true);
  flood(2, 40'000 / rig::kSlowdown, 30, true);
}

// A token that is left behind is noticed when no later one wakes the loop: so pairs, and nothing more until both are
// there. The second comes at a random moment of the first one's way: between drain, exchange and pop, too.
TEST_CASE("two tokens, the second at any moment of the first one's pop, both arrive") {
  constexpr std::size_t kPairs = 20'000 / rig::kSlowdown;
  Completion completion;
  std::atomic<std::size_t> arrived{0};
  std::atomic<bool> stranded{false};
  std::thread pusher([&] {
    std::minstd_rand random(17);
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
      completion.push(2 * pair);
      const Ticks until = ticks() + from_us(static_cast<double>(random() % 4'000) / 1'000);
      while (ticks() < until) {
      }
      completion.push(2 * pair + 1);
      while (arrived.load() < 2 * pair + 2 && !stranded.load()) std::this_thread::yield();
    }
  });
  while (arrived.load() < 2 * kPairs && !stranded.load()) {
    const std::uint64_t watchdog_ns = monotonic_ns() + 20'000'000'000;
    while (!awake(completion) && !stranded.load()) stranded.store(monotonic_ns() > watchdog_ns);
    for (const Token token : completion.pop()) REQUIRE(token == arrived.fetch_add(1));
  }
  pusher.join();
  CHECK_FALSE(stranded.load());
}

TEST_CASE("a loop that pops both when woken and unasked goes to sleep only when there is nothing") {
  constexpr Token kTokens = 100'000 / rig::kSlowdown;
  Completion completion;
  std::thread pusher([&] {
    for (Token token = 0; token < kTokens; ++token) completion.push(token);
  });
  std::minstd_rand random(3);
  for (Token next = 0; next < kTokens;) {
    if (random() % 2 == 0) REQUIRE(awake(completion, 20'000));
    for (const Token token : completion.pop()) REQUIRE(token == next++);
  }
  pusher.join();
}

}  // namespace
