// Ranks that leave, come back, are dropped, or meet the end of the queue.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>

#include "../rig.h"
#include "../sanitized.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;
using queue::Standing;

void publish(queue::Writer& writer, std::uint64_t size = 16) {
  REQUIRE(rig::write(writer, size) == Room::ready);
  writer.flush();
}

TEST_CASE("words of both sides decide how a rank stands") {
  rig::Rig queue;
  const auto stands = [&](std::uint64_t stay, std::uint64_t gate) {
    queue.segment().reader(0).park.stay.store(stay);
    queue.segment().gate(0).gate.store(gate);
    return queue::standing(queue.segment(), 0);
  };
  CHECK(stands(0, 0) == Standing::gates);
  CHECK(stands(1, 0) == Standing::left);
  CHECK(stands(0, 1) == Standing::dropped);
  CHECK(stands(2, 0) == Standing::joining);
  CHECK(stands(2, 1) == Standing::joining);
  CHECK(stands(2, 2) == Standing::gates);
  CHECK(stands(2, 3) == Standing::dropped);
  CHECK(stands(3, 3) == Standing::left);
  CHECK(stands(4, 3) == Standing::joining);
}

TEST_CASE("nobody has to be there: a rank gates from the first message on") {
  rig::Rig queue;
  const auto writer = queue.writer();
  while (rig::write(*writer, 1'000) == Room::ready) writer->flush();
  const std::uint64_t written = writer->sequence();
  const auto reader = queue.reader();
  Slot slot;
  for (std::uint64_t sequence = 0; sequence < written; ++sequence) {
    REQUIRE(reader->take(slot) == Look::ready);
    CHECK(slot.sequence == sequence);
    CHECK(rig::intact(slot));
  }
}

TEST_CASE("a rank that left gates nobody; claimed again it starts at the publish that confirms it") {
  rig::Rig queue;
  const auto writer = queue.writer();
  { const auto reader = queue.reader(); }
  queue.leave(0);
  for (int i = 0; i < 100; ++i) publish(*writer, 1'000);
  const auto reader = queue.reader();
  Slot slot;
  CHECK_FALSE(reader->ready());
  CHECK(reader->take(slot) == Look::empty);
  CHECK(queue::standing(queue.segment(), 0) == Standing::joining);
  const std::uint64_t before = writer->cursor();
  publish(*writer);
  CHECK(shm::doorbell::drain(queue.bell(1)));
  CHECK(queue.segment().gate(0).start.load() == before);
  CHECK(reader->ready());
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 100);
  CHECK_FALSE(slot.redelivered);
  CHECK(rig::intact(slot));
  // It gates now.
  while (rig::write(*writer, 1'000) == Room::ready) writer->flush();
  CHECK(rig::intact(slot));
  reader->release(slot);
}

TEST_CASE("a rank joins again and again, each time where the stream is") {
  rig::Rig queue(2);
  const auto writer = queue.writer();
  const auto steady = queue.reader(0);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto reader = queue.reader(1);
    publish(*writer);
    Slot slot;
    REQUIRE(reader->take(slot) == Look::ready);
    CHECK(slot.sequence == 2 * round);
    CHECK_FALSE(slot.redelivered);
    queue.leave(1);
    CHECK(reader->ready());
    CHECK(reader->take(slot) == Look::dropped);
    publish(*writer);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(steady->take(slot) == Look::ready);
      steady->release(slot);
    }
  }
}

TEST_CASE("a claim that nobody confirmed is inherited by the next one") {
  rig::Rig queue;
  const auto writer = queue.writer();
  queue.leave(0);
  { const auto first = queue.reader(); }
  const std::uint64_t stay = queue.segment().reader(0).park.stay.load();
  const auto second = queue.reader();
  CHECK(queue.segment().reader(0).park.stay.load() == stay);
  publish(*writer);
  Slot slot;
  REQUIRE(second->take(slot) == Look::ready);
  CHECK(slot.sequence == 0);
}

TEST_CASE("a writer that arrives confirms whoever waits, from what is published next") {
  rig::Rig queue;
  queue.leave(0);
  {
    const auto gone = queue.writer();
    for (int i = 0; i < 5; ++i) publish(*gone);
  }
  const auto reader = queue.reader();
  const auto writer = queue.writer();
  CHECK(writer->ring_all() == 1);
  CHECK(shm::doorbell::drain(queue.bell(1)));
  CHECK(reader->ready());  // to learn where it starts
  Slot slot;
  CHECK(reader->take(slot) == Look::empty);
  CHECK_FALSE(reader->ready());
  publish(*writer);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 5);
}

// A batch is published in parts when it outgrows the ring; a rank that joins with such a part gates the rest of it.
TEST_CASE("a batch larger than the ring, begun while nobody reads, does not overrun who joins with it") {
  for (const std::uint64_t parts : {1u, 2u, 3u, 5u, 40u}) {
    CAPTURE(parts);
    rig::Rig queue;
    const auto writer = queue.writer();
    queue.leave(0);
    const auto reader = queue.reader();
    const std::uint64_t size = queue.segment().capacity() / parts - 2 * shm::kSlotHeader;
    constexpr std::uint64_t kMessages = 100;
    std::uint64_t expected = 0;
    Slot slot;
    const auto drain = [&] {
      Look look;
      while ((look = reader->take(slot)) == Look::ready) {
        if (expected == 0) expected = slot.sequence;
        REQUIRE(slot.sequence == expected++);
        REQUIRE(rig::intact(slot));
        reader->release(slot);
      }
      REQUIRE(look == Look::empty);
    };
    while (writer->sequence() < kMessages) {
      const Room room = rig::write(*writer, size);
      if (room == Room::ready) continue;
      REQUIRE(room == Room::full);
      writer->flush();
      drain();
    }
    writer->flush();
    drain();
    CHECK(expected == kMessages);
  }
}

TEST_CASE("a dropped reader learns it at its next use, even with messages looked at already, and may come back") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  publish(*writer);
  publish(*writer);
  Slot slot;
  REQUIRE(reader->take(slot) == Look::ready);
  writer->drop(0);
  CHECK(shm::doorbell::drain(queue.bell(1)));
  CHECK(reader->take(slot) == Look::dropped);
  for (int i = 0; i < 100; ++i) publish(*writer, 1'000);
  CHECK(reader->ready());
  CHECK(reader->take(slot) == Look::dropped);
  const auto again = queue.reader();
  CHECK(again->take(slot) == Look::empty);
  publish(*writer);
  REQUIRE(again->take(slot) == Look::ready);
  CHECK(slot.sequence == 102);
  CHECK(rig::intact(slot));
}

TEST_CASE("a drop and a leave or a join that cross each other leave a rank that can be claimed") {
  rig::Rig queue;
  const auto writer = queue.writer();
  { const auto reader = queue.reader(); }
  queue.leave(0);
  writer->drop(0);  // it had left already
  CHECK(queue::standing(queue.segment(), 0) == Standing::left);
  const auto joining = queue.reader();
  writer->drop(0);  // dropped before it was confirmed
  Slot slot;
  CHECK(joining->take(slot) == Look::dropped);
  const auto again = queue.reader();
  publish(*writer);
  REQUIRE(again->take(slot) == Look::ready);
  CHECK(slot.sequence == 0);
}

// A join that is confirmed between two looks of the reader once came out as the end of the stream.
TEST_CASE("a join confirmed at any moment is no end") {
  rig::Rig queue;
  const auto writer = queue.writer();
  std::atomic<bool> over{false};
  std::thread publisher([&] {
    while (!over.load()) {
      if (rig::write(*writer, 0) == Room::ready) writer->flush();
    }
  });
  std::string ends;
  for (int round = 0; round < 3'000 / rig::kSlowdown; ++round) {
    queue.leave(0);
    const auto reader = queue.reader();
    Slot slot;
    Look look;
    do {
      look = reader->take(slot);
    } while (look == Look::empty);
    if (look != Look::ready) ends += std::to_string(static_cast<int>(look));
  }
  over.store(true);
  publisher.join();
  CHECK(ends == "");
}

TEST_CASE("a closed stream is drained and then ends; a writer that comes later opens it again") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  publish(*writer);
  publish(*writer);
  queue.segment().control().writer.closed.store(1);
  CHECK(reader->ready());
  CHECK(reader->announce());
  Slot slot;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(reader->take(slot) == Look::ready);
    reader->release(slot);
  }
  CHECK(reader->take(slot) == Look::closed);
  CHECK(reader->take(slot) == Look::closed);
  queue.segment().control().writer.closed.store(0);
  CHECK(reader->take(slot) == Look::empty);
  publish(*writer);
  CHECK(reader->take(slot) == Look::ready);
}

TEST_CASE("shutdown: readers drain or stop at once, writers stop in both") {
  for (const std::uint64_t how : {1u, 2u}) {
    CAPTURE(how);
    rig::Rig queue;
    const auto writer = queue.writer();
    const auto reader = queue.reader();
    for (int i = 0; i < 3; ++i) publish(*writer);
    Slot held, slot;
    REQUIRE(reader->take(held) == Look::ready);
    REQUIRE(reader->take(slot) == Look::ready);
    reader->give_back(slot);
    queue.segment().control().owner.shutdown.store(how);
    CHECK(rig::write(*writer, 16) == Room::closed);
    CHECK(writer->ready());
    CHECK(writer->announce());
    CHECK(reader->ready());
    if (how == 1) {
      for (int i = 0; i < 2; ++i) REQUIRE(reader->take(slot) == Look::ready);
    }
    CHECK(reader->take(slot) == Look::closed);
    CHECK(rig::intact(held));  // leases outlive the end
    reader->release(held);
  }
}

TEST_CASE("a rank that waits for its confirmation sees the end") {
  rig::Rig queue;
  queue.leave(0);
  const auto reader = queue.reader();
  Slot slot;
  CHECK(reader->take(slot) == Look::empty);
  queue.segment().control().writer.closed.store(1);
  CHECK(reader->ready());
  CHECK(reader->take(slot) == Look::closed);
}

}  // namespace
