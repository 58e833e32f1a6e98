// One conformance suite for every rung: what rung.h promises, whatever the CPU does inside.
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include "../usable.h"
#include "cpu/rung.h"
#include "platform/cacheline.h"
#include "platform/error.h"
#include "wait/ladder.h"
#include "wait/service.h"
#include "wait/word_watch.h"

namespace {

using namespace aiospin;
using cpu::Ended;
using cpu::Rung;
using rig::for_each_rung;

constexpr double kForEverUs = 60e6;  // a wait that lasts so long has missed its store

// A word alone on its lines, as in a segment.
struct alignas(kLine) Line {
  Word word{0};
};

// A rung may return for no reason, so a wait is a loop, as everywhere.
void wait_for_change(const Rung& rung, const Word& word, std::uint64_t seen) {
  const Ticks until = ticks() + from_us(kForEverUs);
  while (word.load(std::memory_order_acquire) == seen) {
    REQUIRE(ticks() < until);
    cpu::idle(rung, word, seen, until);
  }
}

TEST_CASE("conformance: a store ends the wait") {
  for_each_rung([](const Rung& rung) {
    Line ping, pong;
    std::thread other([&] {
      for (std::uint64_t turn = 1; turn <= 200; ++turn) {
        wait_for_change(rung, ping.word, turn - 1);
        pong.word.store(turn, std::memory_order_release);
      }
    });
    for (std::uint64_t turn = 1; turn <= 200; ++turn) {
      ping.word.store(turn, std::memory_order_release);
      wait_for_change(rung, pong.word, turn - 1);
    }
    other.join();
  });
}

TEST_CASE("conformance: the deadline ends the wait, which never says so before") {
  for_each_rung([](const Rung& rung) {
    const Line line;
    for (const double us : {0.0, 1.0, 50.0, 2'000.0}) {
      CAPTURE(us);
      const Ticks until = ticks() + from_us(us);
      Ended ended;
      do {
        ended = rung.wait(line.word, 0, until);
        REQUIRE(ended != Ended::changed);
        REQUIRE((ended == Ended::deadline) <= (ticks() >= until));
      } while (ended == Ended::empty);
    }
  });
}

TEST_CASE("conformance: a word that has changed, and a deadline that has passed, end it at once") {
  for_each_rung([](const Rung& rung) {
    Line line;
    line.word.store(6);
    CHECK(rung.wait(line.word, 5, ~Ticks{0}) == Ended::changed);  // a rung that missed this would hang here
    CHECK(rung.wait(line.word, ~std::uint64_t{0}, ~Ticks{0}) == Ended::changed);
    CHECK(rung.wait(line.word, 6, 0) == Ended::deadline);
    CHECK(rung.wait(line.word, 6, ticks()) == Ended::deadline);
  });
}

TEST_CASE("conformance: a store between arming and dozing is not slept past") {
  for_each_rung([](const Rung& rung) {
    if (!rung.monitors()) return;  // a breath holds nothing between two looks
    Line line;
    for (std::uint64_t turn = 0; turn < 50; ++turn) {
      rung.arm(line.word);
      std::thread([&] { line.word.store(turn + 1, std::memory_order_release); }).join();
      const Ticks until = ticks() + from_us(kForEverUs);
      rung.doze(until);
      REQUIRE(ticks() < until);
    }
  });
}

// Stores at the moment at which a wait has read its clock or its word for the n-th time cannot be driven from outside, so
// a storing thread goes through all phases of the wait by its own, ever different, pace.
TEST_CASE("conformance: no store at any phase of a wait is missed") {
  for_each_rung([](const Rung& rung) {
    Line line, reached;
    std::thread storing([&] {
      for (std::uint64_t turn = 1; turn <= 3'000; ++turn) {
        while (reached.word.load(std::memory_order_acquire) != turn) std::this_thread::yield();
        const Ticks until = ticks() + from_us(static_cast<double>(turn % 97) / 100);
        while (ticks() < until) {
        }
        line.word.store(turn, std::memory_order_release);
      }
    });
    for (std::uint64_t turn = 1; turn <= 3'000; ++turn) {
      reached.word.store(turn, std::memory_order_release);
      wait_for_change(rung, line.word, turn - 1);
    }
    storing.join();
  });
}

TEST_CASE("conformance: waits without a reason to end go on") {
  // A word that another thread writes on the same line ends dozes for nothing; signals interrupt them.
  for_each_rung([](const Rung& rung) {
    struct alignas(kLine) Shared {
      Word word{0}, noise{0};
    } line;
    struct sigaction quiet{}, before{};
    quiet.sa_handler = [](int) {};
    sigaction(SIGUSR1, &quiet, &before);
    const pthread_t waiting = pthread_self();
    std::thread disturbing([&] {
      for (int i = 0; i < 2'000; ++i) {
        line.noise.store(static_cast<std::uint64_t>(i));
        if (i % 50 == 0) pthread_kill(waiting, SIGUSR1);
      }
      line.word.store(1, std::memory_order_release);
    });
    wait_for_change(rung, line.word, 0);
    disturbing.join();
    sigaction(SIGUSR1, &before, nullptr);
  });
}

TEST_CASE("conformance: several threads may wait on one word") {
  for_each_rung([](const Rung& rung) {
    Line line;
    std::vector<std::thread> threads;
    std::atomic<int> woken{0};
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        wait_for_change(rung, line.word, 0);
        woken.fetch_add(1);
      });
    }
    line.word.store(1);
    for (std::thread& thread : threads) thread.join();
    CHECK(woken.load() == 4);
  });
}

// One page of shared memory, mapped twice.
class Twice {
 public:
  Twice() : fd_(memfd_create("conformance", MFD_CLOEXEC)) {
    if (fd_ < 0 || ftruncate(fd_, kSize) != 0) throw_errno("memfd");
    writable_ = map(PROT_READ | PROT_WRITE);
    readable_ = map(PROT_READ);
  }
  ~Twice() {
    munmap(writable_, kSize);
    munmap(readable_, kSize);
    close(fd_);
  }
  Word& writable() const { return *static_cast<Word*>(writable_); }
  const Word& readable() const { return *static_cast<const Word*>(readable_); }

 private:
  static constexpr std::size_t kSize = 4096;
  void* map(int protection) const {
    void* address = mmap(nullptr, kSize, protection, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) throw_errno("mmap");
    return address;
  }
  const int fd_;
  void *writable_, *readable_;
};

TEST_CASE("conformance: a read-only mapping is enough, and a store through another one is seen") {
  for_each_rung([](const Rung& rung) {
    const Twice page;
    CHECK(rung.wait(page.readable(), 0, ticks() + from_us(100)) != Ended::changed);
    std::thread storing([&] {
      std::this_thread::yield();
      page.writable().store(1, std::memory_order_release);
    });
    wait_for_change(rung, page.readable(), 0);
    storing.join();
  });
}

TEST_CASE("conformance: the ladder's monitor stage ends by a store and by its deadline") {
  for_each_rung([](const Rung& rung) {
    Line line;
    wait::WordWatch watch(line.word, wait::Comparison::equal, 1, ~std::uint64_t{0});
    watch.set_rung(&rung);
    CHECK_FALSE(wait::monitor(watch, ticks() + from_us(500)));
    std::thread storing([&] { line.word.store(1, std::memory_order_release); });
    CHECK(wait::monitor(watch, ticks() + from_us(kForEverUs)));
    storing.join();
  });
}

TEST_CASE("conformance: the waiter thread answers, and lets go of a watch that is cancelled") {
  for_each_rung([](const Rung& rung) {
    const auto completion = std::make_shared<wait::Completion>();
    for (int turn = 0; turn < 50; ++turn) {
      auto line = std::make_unique<Line>();
      auto watch = std::make_unique<wait::WordWatch>(line->word, wait::Comparison::equal, 1, ~std::uint64_t{0});
      watch->set_rung(&rung);
      wait::Service::instance().submit(*watch, completion, 7, ticks() + from_us(kForEverUs));
      if (turn % 2 == 0) {
        CHECK(wait::Service::instance().cancel(*watch));  // the memory goes at once: a sanitizer would see a look at it
        continue;
      }
      line->word.store(1, std::memory_order_release);
      std::vector<wait::Token> answered;
      while (answered.empty()) answered = completion->pop();
      CHECK(answered == std::vector<wait::Token>{7});
      CHECK_FALSE(wait::Service::instance().cancel(*watch));
    }
  });
}

}  // namespace
