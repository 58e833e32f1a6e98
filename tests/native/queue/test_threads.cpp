// Real threads that park on real bells: no message is lost, no wake is lost, and no byte is touched by two sides.
//
// Every sleep has a watchdog: one that ends by it was a lost wake, and fails the test. Payloads are read through the
// writer's mapping of the ring, since a thread sanitizer knows bytes by their address: so it sees both sides of the
// hand-over, which the cursors alone must order.
#include <doctest/doctest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "../rig.h"
#include "../sanitized.h"
#include "wait/ladder.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

constexpr std::int64_t kWatchdogNs = 20'000'000'000;

// What went wrong first; everybody else then stops. doctest's own checks take a lock each and would set the pace.
class Verdict {
 public:
  bool fine() const noexcept { return first_.load(std::memory_order_relaxed) == nullptr; }
  void must(bool held, const char* what) noexcept {
    const char* none = nullptr;
    if (!held) first_.compare_exchange_strong(none, what);
  }
  const char* first() const noexcept { return first_.load() == nullptr ? "" : first_.load(); }

 private:
  std::atomic<const char*> first_{nullptr};
};

struct Course {
  std::uint32_t readers;
  std::uint64_t capacity;
  std::uint64_t messages;
  std::uint64_t largest;   // payload bytes
  std::uint64_t batch;     // at most so many messages per flush
  unsigned pause_us;       // at most, now and then
  unsigned succession;     // one in so many waits is ended by a successor instead; 0: never
};

using Random = std::minstd_rand;

std::uint64_t size_of(std::uint64_t sequence, std::uint64_t largest) {
  return sequence * 2'654'435'761u % (largest + 1);
}

void pause(Random& random, const Course& course) {
  if (course.pause_us == 0 || random() % 16 != 0) return;
  const Ticks until = ticks() + from_us(static_cast<double>(random() % course.pause_us));
  while (ticks() < until) {
  }
}

template <typename Endpoint>
void sleep(Endpoint& endpoint, int bell, Random& random, Verdict& verdict) {
  wait::EndpointWatch watch(endpoint);
  if (random() % 4 == 0 && wait::monitor(watch, ticks() + from_us(5))) return;
  pollfd descriptors[] = {{bell, POLLIN, 0}};
  verdict.must(wait::park(watch, descriptors, kWatchdogNs, nullptr) != wait::Woke::timeout, "a wake was lost");
}

void read(rig::Rig& queue, std::uint32_t rank, const Course& course, Verdict& verdict) {
  Random random(rank + 1);
  const std::byte* const ring = queue.segment().ring_for_writing();
  auto reader = queue.reader(rank);
  std::vector<Slot> held;
  for (std::uint64_t next = 0; next < course.messages && verdict.fine();) {
    Slot slot;
    const Look look = reader->take(slot);
    if (look == Look::ready) {
      verdict.must(slot.sequence == next++, "a message is missing or twice");
      verdict.must(slot.size == size_of(slot.sequence, course.largest), "a size is wrong");
      slot.bytes = ring + slot.begin % course.capacity + shm::kSlotHeader;
      held.push_back(slot);
      pause(random, course);
      if (held.size() < 4 && random() % 4 == 0) continue;
      while (!held.empty()) {  // in any order
        std::swap(held[random() % held.size()], held.back());
        verdict.must(rig::intact(held.back()), "bytes changed under a lease");
        reader->release(held.back());
        held.pop_back();
      }
    } else if (course.succession != 0 && held.empty() && random() % course.succession == 0) {
      reader = queue.reader(rank);
      shm::doorbell::ring(queue.bell(0));  // as whoever claims a reader's role
    } else {
      verdict.must(look == Look::empty, "a reader met an end");
      for (const Slot& each : held) reader->release(each);
      held.clear();
      sleep(*reader, queue.bell(1 + rank), random, verdict);
    }
  }
}

void write(rig::Rig& queue, const Course& course, Verdict& verdict) {
  Random random(99);
  auto writer = queue.writer();
  for (std::uint64_t staged = 0; writer->sequence() < course.messages && verdict.fine();) {
    const Room room = rig::write(*writer, size_of(writer->sequence(), course.largest));
    if (room == Room::ready) {
      if (++staged < course.batch && random() % 4 != 0) continue;
      writer->flush();
      staged = 0;
      pause(random, course);
      continue;
    }
    verdict.must(room == Room::full, "a writer met an end");
    writer->flush();
    staged = 0;
    if (course.succession != 0 && random() % course.succession == 0) {
      writer = queue.writer();
      writer->ring_all();
    } else {
      sleep(*writer, queue.bell(0), random, verdict);
    }
  }
  writer->flush();
}

void run(const Course& course) {
  rig::Rig queue(course.readers, course.capacity);
  Verdict verdict;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < course.readers; ++rank) {
    threads.emplace_back([&, rank] { read(queue, rank, course, verdict); });
  }
  write(queue, course, verdict);
  for (std::thread& thread : threads) thread.join();
  CHECK(std::string(verdict.first()) == "");
}

TEST_CASE("readers that park lose nothing: one reader, a million messages") {
  run({1, 16 * rig::kPageBytes, 1'000'000 / rig::kSlowdown, 60, 32, 40, 0});
}

TEST_CASE("readers that park lose nothing: three readers") {
  run({3, 16 * rig::kPageBytes, 400'000 / rig::kSlowdown, 120, 32, 40, 0});
}

TEST_CASE("every message finds its readers asleep, or nearly") {
  run({2, 16 * rig::kPageBytes, 30'000 / rig::kSlowdown, 30, 1, 200, 0});
}

TEST_CASE("a writer that parks for room loses nothing: a tiny ring, one reader") {
  run({1, rig::kPageBytes, 150'000 / rig::kSlowdown, 600, 8, 40, 0});
}

TEST_CASE("a writer that parks for room is woken by the last of several readers") {
  run({3, rig::kPageBytes, 60'000 / rig::kSlowdown, 1'500, 8, 40, 0});
}

TEST_CASE("slots as large as the ring go through one at a time") {
  run({2, rig::kPageBytes, 20'000 / rig::kSlowdown, rig::kPageBytes - shm::kSlotHeader, 1, 20, 0});
}

TEST_CASE("successors on both sides, in the middle of everything") {
  run({2, rig::kPageBytes, 60'000 / rig::kSlowdown, 300, 8, 20, 20});
}

TEST_CASE("a rank that leaves and joins while the writer goes on sees one run of messages each time") {
  const Course course{2, 4 * rig::kPageBytes, 300'000 / rig::kSlowdown, 100, 4, 20, 0};
  rig::Rig queue(course.readers, course.capacity);
  Verdict verdict;
  std::atomic<bool> over{false};
  std::uint64_t joins = 0;
  std::thread steady([&] { read(queue, 0, course, verdict); });
  std::thread guest([&] {
    Random random(5);
    const std::byte* const ring = queue.segment().ring_for_writing();
    while (!over.load() && verdict.fine()) {
      queue.leave(1);
      const auto reader = queue.reader(1);
      std::uint64_t next = 0;
      for (std::uint64_t seen = 0, most = random() % 20; seen <= most && !over.load() && verdict.fine();) {
        Slot slot;
        const Look look = reader->take(slot);
        if (look == Look::ready) {
          verdict.must(next == 0 || slot.sequence == next, "a message is missing within one stay");
          slot.bytes = ring + slot.begin % course.capacity + shm::kSlotHeader;
          verdict.must(rig::intact(slot), "bytes changed under a lease");
          next = slot.sequence + 1;
          joins += seen++ == 0 ? 1 : 0;
          reader->release(slot);
        } else {
          verdict.must(look == Look::empty, "a joining reader met an end");
          if (over.load()) break;
          sleep(*reader, queue.bell(2), random, verdict);
        }
      }
    }
    queue.leave(1);
  });
  write(queue, course, verdict);
  over.store(true);
  shm::doorbell::ring(queue.bell(2));
  // Whoever parked before the ring above is awake; whoever parks after it sees `over`, or the byte.
  steady.join();
  guest.join();
  CHECK(std::string(verdict.first()) == "");
  CHECK(joins > 0);
}

}  // namespace
