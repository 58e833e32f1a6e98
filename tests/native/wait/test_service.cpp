// The waiter thread: every watch is answered once, or parked once, or cancelled, and then never touched again.
#include "wait/service.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "../rig.h"
#include "../sanitized.h"
#include "shm/doorbell.h"
#include "wait/word_watch.h"

namespace {

using namespace aiospin;
using wait::Completion;
using wait::EndpointWatch;
using wait::Service;
using wait::Token;

constexpr double kForEverUs = 600e6;

// Pops until `count` tokens are there, asleep on the eventfd in between as a loop would be.
std::vector<Token> collect(Completion& completion, std::size_t count) {
  std::vector<Token> tokens;
  while (tokens.size() < count) {
    pollfd wake{completion.fileno(), POLLIN, 0};
    REQUIRE(poll(&wake, 1, 30'000) == 1);
    for (const Token token : completion.pop()) tokens.push_back(token);
  }
  return tokens;
}

// A watch on a word of its own, which counts how often it was parked and says what its second look finds.
class Counted final : public wait::Watch {
 public:
  explicit Counted(bool second_look = false) noexcept : second_look_(second_look) {}
  const Word& word() const noexcept override { return word_; }
  std::uint64_t seen() const noexcept override { return 0; }
  bool ready() const noexcept override { return word_.load() != 0 || quiet_.load(); }
  bool announce() noexcept override {
    announced_.fetch_add(1);
    return second_look_;
  }
  void set() noexcept { word_.store(1); }
  // Ready by something that is not the watched word.
  void set_quietly() noexcept { quiet_.store(true); }
  int announced() const noexcept { return announced_.load(); }

 private:
  Word word_{0};
  std::atomic<bool> quiet_{false};
  std::atomic<int> announced_{0};
  const bool second_look_;
};

TEST_CASE("a watch is answered by the service, or parked and rung") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  const auto completion = std::make_shared<Completion>();
  for (Token token = 0; token < 2'000; ++token) {
    const bool parks = token % 3 == 0;
    Service::instance().submit(watch, completion, token, parks ? ticks() : ticks() + from_us(1e6));
    REQUIRE(rig::write(*writer, 8) == queue::Room::ready);
    writer->flush();
    // Either the token or the bell comes; both may.
    pollfd either[] = {{completion->fileno(), POLLIN, 0}, {queue.bell(1), POLLIN, 0}};
    REQUIRE(poll(either, 2, 30'000) >= 1);
    Service::instance().cancel(watch);
    for (const Token answered : completion->pop()) CHECK(answered == token);
    shm::doorbell::drain(queue.bell(1));
    queue::Slot slot;
    REQUIRE(reader->take(slot) == queue::Look::ready);
    CHECK(rig::intact(slot));
    reader->release(slot);
  }
}

TEST_CASE("many watches are all answered") {
  constexpr std::uint32_t kReaders = 64;
  rig::Rig queue(kReaders);
  const auto writer = queue.writer();
  std::vector<std::unique_ptr<queue::Reader>> readers;
  std::vector<std::unique_ptr<EndpointWatch<queue::Reader>>> watches;
  const auto completion = std::make_shared<Completion>();
  for (std::uint32_t rank = 0; rank < kReaders; ++rank) {
    readers.push_back(queue.reader(rank));
    watches.push_back(std::make_unique<EndpointWatch<queue::Reader>>(*readers.back()));
    Service::instance().submit(*watches.back(), completion, rank, ticks() + from_us(30e6));
  }
  REQUIRE(rig::write(*writer, 8) == queue::Room::ready);
  writer->flush();
  CHECK(collect(*completion, kReaders).size() == kReaders);
}

TEST_CASE("a change is told once, and the watch is forgotten") {
  const auto completion = std::make_shared<Completion>();
  for (Token token = 0; token < 200; ++token) {
    Counted watch;
    Service::instance().submit(watch, completion, token, ticks() + from_us(kForEverUs));
    watch.set();
    CHECK(collect(*completion, 1) == std::vector<Token>{token});
    CHECK_FALSE(Service::instance().cancel(watch));
    CHECK(watch.announced() == 0);
  }
  CHECK(completion->pop().empty());
}

TEST_CASE("what became ready before it was submitted, or without its word, is told too") {
  const auto completion = std::make_shared<Completion>();
  Counted before, quiet, other;
  before.set();
  Service::instance().submit(before, completion, 1, ticks() + from_us(kForEverUs));
  CHECK(collect(*completion, 1) == std::vector<Token>{1});
  for (const bool alone : {true, false}) {
    CAPTURE(alone);
    if (!alone) Service::instance().submit(other, completion, 3, ticks() + from_us(kForEverUs));
    Counted watch;
    Service::instance().submit(watch, completion, 2, ticks() + from_us(kForEverUs));
    watch.set_quietly();
    CHECK(collect(*completion, 1) == std::vector<Token>{2});
  }
  CHECK(Service::instance().cancel(other));
}

TEST_CASE("when its time is over a watch is parked once and forgotten; told only if the second look finds something") {
  const auto completion = std::make_shared<Completion>();
  for (const bool finds : {false, true}) {
    for (const double us : {0.0, 300.0}) {
      CAPTURE(finds);
      CAPTURE(us);
      Counted watch(finds);
      const Ticks until = ticks() + from_us(us);
      Service::instance().submit(watch, completion, 5, until);
      const Ticks give_up = ticks() + from_us(30e6);
      while (watch.announced() == 0) {
        REQUIRE(ticks() < give_up);
        std::this_thread::yield();
      }
      CHECK(ticks() >= until);
      if (finds) CHECK(collect(*completion, 1) == std::vector<Token>{5});
      CHECK_FALSE(Service::instance().cancel(watch));
      watch.set();
      Counted next;  // one more pass of the thread goes by
      Service::instance().submit(next, completion, 6, ticks() + from_us(kForEverUs));
      next.set();
      CHECK(collect(*completion, 1) == std::vector<Token>{6});
      CHECK(watch.announced() == 1);
    }
  }
}

TEST_CASE("a watch that nobody submitted cannot be cancelled, one that waits can be once") {
  const auto completion = std::make_shared<Completion>();
  Counted watch;
  CHECK_FALSE(Service::instance().cancel(watch));
  Service::instance().submit(watch, completion, 1, ticks() + from_us(kForEverUs));
  CHECK(Service::instance().cancel(watch));
  CHECK_FALSE(Service::instance().cancel(watch));
  watch.set();
  CHECK(completion->pop().empty());
}

// Each round destroys its watches as soon as it may: a thread that still touched one would be caught by a sanitizer.
void churn(unsigned seed, std::size_t rounds, std::atomic<std::size_t>& answered) {
  std::minstd_rand random(seed);
  for (std::size_t round = 0; round < rounds; ++round) {
    const auto completion = std::make_shared<Completion>();
    const std::size_t count = 1 + random() % 4;
    std::vector<std::unique_ptr<Counted>> watches;
    std::vector<bool> must_answer(count);
    std::size_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
      watches.push_back(std::make_unique<Counted>(random() % 2 == 0));
      const double us = random() % 3 == 0 ? kForEverUs : static_cast<double>(random() % 200);
      Service::instance().submit(*watches[i], completion, i, ticks() + from_us(us));
      if (us == kForEverUs && random() % 2 == 0) {
        must_answer[i] = true;
        ++expected;
        watches[i]->set();
      }
    }
    // Of what need not be answered some is cancelled at once, and some only after what must be has been.
    for (std::size_t i = 0; i < count; ++i) {
      if (must_answer[i] || random() % 2 == 0) continue;
      Service::instance().cancel(*watches[i]);
      watches[i].reset();
    }
    std::vector<int> told(count);
    while (expected > 0) {
      for (const Token token : collect(*completion, 1)) {
        REQUIRE(token < count);
        REQUIRE(++told[token] == 1);
        if (must_answer[token]) --expected;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (watches[i] == nullptr) continue;
      const bool was_waiting = Service::instance().cancel(*watches[i]);
      if (must_answer[i]) REQUIRE_FALSE(was_waiting);
      REQUIRE(watches[i]->announced() <= 1);
      watches[i].reset();
    }
    for (const Token token : completion->pop()) REQUIRE(++told[token] == 1);
    for (const int times : told) answered += static_cast<std::size_t>(times);
  }
}

TEST_CASE("several loops submit, cancel and destroy at random") {
  constexpr std::size_t kRounds = 10'000 / rig::kSlowdown;
  std::atomic<std::size_t> answered{0};
  std::vector<std::thread> loops;
  for (unsigned seed = 1; seed <= 3; ++seed) loops.emplace_back([&, seed] { churn(seed, kRounds, answered); });
  for (std::thread& loop : loops) loop.join();
  CHECK(answered.load() > kRounds / 4);
}

TEST_CASE("a completion lives as long as somebody may push to it") {
  Counted watch;
  std::weak_ptr<Completion> observed;
  {
    const auto completion = std::make_shared<Completion>();
    observed = completion;
    Service::instance().submit(watch, completion, 1, ticks() + from_us(kForEverUs));
  }
  CHECK_FALSE(observed.expired());
  CHECK(Service::instance().cancel(watch));
  CHECK(observed.expired());
}

}  // namespace
