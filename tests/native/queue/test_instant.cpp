// Both sides act at the same instant, many times over: what store buffers do to a protocol without its barriers.
//
// Two threads leave a starting line together; one changes something and looks whether somebody sleeps, the other lies
// down and looks again. Whatever the CPUs make of it, whoever lay down has a byte in the bell in the end. An exchange
// that became a store loses some of the thousands of rounds on any x86 with two cores to run on.
#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <random>
#include <thread>

#include "../race.h"
#include "../rig.h"
#include "platform/cacheline.h"
#include "platform/clock.h"
#include "platform/membarrier.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;
using rig::rung;

constexpr int kRounds = 40'000 / rig::kSlowdown;
constexpr double kLongestUs = 3e6;  // where two threads rarely run at once, fewer rounds must do

// Lets two threads go on together, a few nanoseconds apart.
class Start {
 public:
  void line_up() noexcept {
    const unsigned round = round_.load(std::memory_order_acquire);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) == 1) {
      waiting_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (unsigned spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins > 100'000) std::this_thread::yield();  // the other one has no CPU at the moment
    }
  }

 private:
  std::atomic<unsigned> round_{0}, waiting_{0};
};

// Keeps this thread to one CPU, and whoever asks with another number to another: on one CPU there is no one instant.
// Undone at the end.
class OnCpu {
 public:
  explicit OnCpu(int number) noexcept {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_) && seen++ == number) CPU_SET(cpu, &one);
    }
    sched_setaffinity(0, sizeof one, &one);  // fails, and changes nothing, where there is no such CPU
  }
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
  ~OnCpu() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

// Cache lines that the other side has just written. Stores to them take their time, and whatever is stored behind them
// waits: a plain store is then seen long after the loads that follow it in the program.
class Burden {
 public:
  void own() noexcept { stores(kLines); }
  void stores(std::size_t count) noexcept {
    for (std::size_t line = 0; line < count; ++line) lines_[line].word.store(1, std::memory_order_relaxed);
  }
  static constexpr std::size_t kLines = 24;

 private:
  struct alignas(kLine) Line {
    Word word{0};
  };
  Line lines_[kLines];
};

// A moment more or less, with stores under way or without.
void dawdle(std::minstd_rand& random, Burden& burden) {
  for (unsigned turns = random() % 64; turns > 0; --turns) asm volatile("" ::: "memory");
  if (random() % 4 != 0) burden.stores(random() % (Burden::kLines + 1));
}

// Runs `here` and `there` at one instant, round after round, each between `prepare` and `judge`, which run alone.
template <typename Prepare, typename Here, typename There, typename Judge>
void at_one_instant(Prepare prepare, Here here, There there, Judge judge) {
  Start start;
  Burden of_here, of_there;
  std::atomic<bool> over{false};
  std::thread other([&] {
    const OnCpu second(1);
    std::minstd_rand random(1);
    for (;;) {
      start.line_up();
      if (over.load()) return;
      dawdle(random, of_there);
      there();
      of_here.own();
      start.line_up();
    }
  });
  const OnCpu first(0);
  std::minstd_rand random(2);
  const Ticks until = ticks() + from_us(kLongestUs);
  int lost = 0;
  for (int round = 0; round < kRounds && lost == 0 && ticks() < until; ++round) {
    prepare();
    of_there.own();
    start.line_up();
    dawdle(random, of_here);
    here();
    start.line_up();
    lost += judge() ? 0 : 1;
  }
  over.store(true);
  start.line_up();
  other.join();
  CHECK(lost == 0);
}

struct Pair {
  explicit Pair(std::uint32_t readers = 1) : queue(readers, rig::kPageBytes), writer(queue.writer()) {}
  void publish() {
    REQUIRE(rig::write(*writer, 8) == Room::ready);
    writer->flush();
  }
  void take_all(queue::Reader& reader) {
    Slot slot;
    while (reader.take(slot) == Look::ready) reader.release(slot);
    shm::doorbell::drain(queue.bell(0));
    shm::doorbell::drain(queue.bell(1));
  }
  rig::Rig queue;
  std::unique_ptr<queue::Writer> writer;
  bool slept = false;
};

TEST_CASE("at one instant: a publish, and a reader that lies down") {
  Pair pair;
  const auto reader = pair.queue.reader();
  at_one_instant(
      [&] {
        pair.publish();  // so that no epoch is left over to ring for
        pair.take_all(*reader);
        REQUIRE(rig::write(*pair.writer, 8) == Room::ready);
      },
      [&] { pair.slept = !reader->announce(); }, [&] { pair.writer->flush(); },
      [&] { return !pair.slept || rung(pair.queue.bell(1)); });
}

TEST_CASE("at one instant: a release, and a writer that lies down for room") {
  Pair pair;
  const auto reader = pair.queue.reader();
  Slot slot;
  at_one_instant(
      [&] {
        while (rig::write(*pair.writer, 500) == Room::ready) pair.writer->flush();
        REQUIRE(reader->take(slot) == Look::ready);
        reader->release(slot);  // so that no epoch is left over to ring for
        shm::doorbell::drain(pair.queue.bell(0));
        while (rig::write(*pair.writer, 500) == Room::ready) pair.writer->flush();
        REQUIRE(reader->take(slot) == Look::ready);
      },
      [&] { pair.slept = !pair.writer->announce(); }, [&] { reader->release(slot); },
      [&] { return !pair.slept || rung(pair.queue.bell(0)); });
}

TEST_CASE("at one instant: the last two releases that make room for a writer that sleeps") {
  Pair pair(2);
  const auto one = pair.queue.reader(0), two = pair.queue.reader(1);
  Slot first, second;
  at_one_instant(
      [&] {
        shm::doorbell::drain(pair.queue.bell(0));
        while (rig::write(*pair.writer, 500) == Room::ready) pair.writer->flush();
        REQUIRE(one->take(first) == Look::ready);
        REQUIRE(two->take(second) == Look::ready);
        REQUIRE_FALSE(pair.writer->announce());
      },
      [&] { one->release(first); }, [&] { two->release(second); },
      [&] { return rung(pair.queue.bell(0)); });
}

// A peer of the other backend: plain stores in program order, and no barrier of its own.
TEST_CASE("at one instant: a publish with plain stores, and a reader that has the kernel order them") {
  if (!membarrier::enroll()) {
    MESSAGE("the kernel has no such barrier");
    return;
  }
  Pair pair;
  shm::Control& control = pair.queue.segment().control();
  control.writer.seat.state.store(shm::kLight | shm::kPresent);
  const auto reader = pair.queue.reader();
  Word& epoch = pair.queue.segment().reader(0).park.epoch;
  std::uint64_t rung_for = 0;
  at_one_instant(
      [&] {
        shm::doorbell::drain(pair.queue.bell(1));
        control.published.cursor.store(0);
      },
      [&] { pair.slept = !reader->announce(); },
      [&] {
        control.published.cursor.store(64, std::memory_order_relaxed);
        const std::uint64_t seen = epoch.load(std::memory_order_relaxed);
        if (seen != rung_for) shm::doorbell::ring(pair.queue.bell(1));
        rung_for = seen;
      },
      [&] { return !pair.slept || rung(pair.queue.bell(1)); });
}

TEST_CASE("at one instant: a release with plain stores, and a writer that has the kernel order them") {
  if (!membarrier::enroll()) {
    MESSAGE("the kernel has no such barrier");
    return;
  }
  Pair pair;
  shm::ReaderLines& lines = pair.queue.segment().reader(0);
  lines.seat.seat.state.store(shm::kLight | shm::kPresent);
  while (rig::write(*pair.writer, 500) == Room::ready) pair.writer->flush();
  const Word& epoch = pair.queue.segment().control().room.epoch;
  std::uint64_t rung_for = 0;
  at_one_instant(
      [&] {
        shm::doorbell::drain(pair.queue.bell(0));
        lines.released.cursor.store(0);
      },
      [&] { pair.slept = !pair.writer->announce(); },
      [&] {
        lines.released.cursor.store(shm::stride(500), std::memory_order_relaxed);
        const std::uint64_t seen = epoch.load(std::memory_order_relaxed);
        if (seen != rung_for) shm::doorbell::ring(pair.queue.bell(0));
        rung_for = seen;
      },
      [&] { return !pair.slept || rung(pair.queue.bell(0)); });
}

}  // namespace
