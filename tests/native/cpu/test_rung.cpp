// One behaviour for every rung: a store ends the wait, so does the deadline, and a word changed before ends it at once.
#include "cpu/rung.h"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace aiospin;

// Those that this CPU has, or is made to have.
std::vector<const cpu::Rung*> rungs() {
  std::vector<const cpu::Rung*> found;
  for (const cpu::Verdict& each : cpu::verdicts()) {
    if (each.refusal.empty()) found.push_back(each.rung);
  }
  return found;
}

// A rung may return for no reason, so a wait is a loop, as everywhere.
void wait_for_change(const cpu::Rung& rung, const Word& word, std::uint64_t seen) {
  const Ticks until = ticks() + from_us(60e6);
  while (word.load(std::memory_order_acquire) == seen) {
    REQUIRE(ticks() < until);
    rung.wait(word, seen, until);
  }
}

TEST_CASE("a store ends the wait") {
  for (const cpu::Rung* rung : rungs()) {
    CAPTURE(std::string(rung->name));
    Word ping{0}, pong{0};
    std::thread other([&] {
      for (std::uint64_t turn = 1; turn <= 200; ++turn) {
        wait_for_change(*rung, ping, turn - 1);
        pong.store(turn, std::memory_order_release);
      }
    });
    for (std::uint64_t turn = 1; turn <= 200; ++turn) {
      ping.store(turn, std::memory_order_release);
      wait_for_change(*rung, pong, turn - 1);
    }
    other.join();
  }
}

TEST_CASE("the deadline ends the wait, and not before") {
  for (const cpu::Rung* rung : rungs()) {
    CAPTURE(std::string(rung->name));
    const Word word{5};
    for (const double us : {0.0, 1.0, 50.0, 2'000.0}) {
      CAPTURE(us);
      const Ticks begun = ticks(), until = begun + from_us(us);
      while (ticks() < until) rung->wait(word, 5, until);
      CHECK(ticks() >= until);
    }
  }
}

TEST_CASE("a word that has changed already, and a deadline that has passed, end it at once") {
  for (const cpu::Rung* rung : rungs()) {
    CAPTURE(std::string(rung->name));
    const Word word{6};
    rung->wait(word, 5, ~Ticks{0});  // a rung that missed this would hang here
    rung->wait(word, ~std::uint64_t{0}, ~Ticks{0});
    rung->wait(word, 6, 0);
    rung->wait(word, 6, ticks());
    CHECK(word.load() == 6);
  }
}

TEST_CASE("several threads may wait on one word") {
  for (const cpu::Rung* rung : rungs()) {
    CAPTURE(std::string(rung->name));
    Word word{0};
    std::vector<std::thread> threads;
    std::atomic<int> woken{0};
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        wait_for_change(*rung, word, 0);
        woken.fetch_add(1);
      });
    }
    word.store(1);
    for (std::thread& thread : threads) thread.join();
    CHECK(woken.load() == 4);
  }
}

}  // namespace
