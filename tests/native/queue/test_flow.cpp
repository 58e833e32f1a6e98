// Writer and readers without waiting: order, gating, succession, and what must not be read.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "../rig.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

TEST_CASE("messages arrive in order and intact, empty ones too") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  for (std::uint64_t sequence = 0; sequence < 5'000; ++sequence) {
    REQUIRE(rig::write(*writer, sequence % 300) == Room::ready);
    writer->flush();
    Slot slot;
    REQUIRE(reader->take(slot) == Look::ready);
    CHECK(slot.sequence == sequence);
    CHECK(slot.size == sequence % 300);
    CHECK(rig::intact(slot));
    CHECK_FALSE(slot.redelivered);
    CHECK(reinterpret_cast<std::uintptr_t>(slot.bytes) % 64 == 0);
    reader->release(slot);
  }
}

TEST_CASE("nothing is visible before flush") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  Slot slot;
  REQUIRE(rig::write(*writer, 10) == Room::ready);
  CHECK(reader->take(slot) == Look::empty);
  CHECK_FALSE(reader->ready());
  writer->flush();
  CHECK(reader->ready());
  CHECK(reader->take(slot) == Look::ready);
}

TEST_CASE("the slowest reader gates the writer, and releases in any order free the oldest run") {
  rig::Rig queue(2);
  const auto writer = queue.writer();
  const auto fast = queue.reader(0), slow = queue.reader(1);
  std::vector<Slot> held;
  while (rig::write(*writer, 1000) == Room::ready) {
    writer->flush();
    Slot slot;
    REQUIRE(fast->take(slot) == Look::ready);
    fast->release(slot);
    REQUIRE(slow->take(slot) == Look::ready);
    held.push_back(slot);
  }
  REQUIRE(held.size() > 3);
  for (std::size_t i = held.size() - 1; i > 0; --i) slow->release(held[i]);
  CHECK(rig::write(*writer, 1000) == Room::full);
  for (const Slot& slot : held) CHECK(rig::intact(slot));
  slow->release(held[0]);
  CHECK(writer->ready());
  CHECK(rig::write(*writer, 1000) == Room::ready);
}

TEST_CASE("a slot given back untouched is handed out next") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  for (int i = 0; i < 3; ++i) REQUIRE(rig::write(*writer, 16) == Room::ready);
  writer->flush();
  Slot first, second, again;
  REQUIRE(reader->take(first) == Look::ready);
  REQUIRE(reader->take(second) == Look::ready);
  reader->give_back(second);
  reader->give_back(first);
  for (const std::uint64_t sequence : {0, 1, 2}) {
    REQUIRE(reader->take(again) == Look::ready);
    CHECK(again.sequence == sequence);
    reader->release(again);
  }
}

TEST_CASE("a successor reader starts at what was not released, marked as delivered before") {
  rig::Rig queue;
  const auto writer = queue.writer();
  for (int i = 0; i < 4; ++i) REQUIRE(rig::write(*writer, 16) == Room::ready);
  writer->flush();
  Slot slot;
  {
    const auto first = queue.reader();
    REQUIRE(first->take(slot) == Look::ready);
    first->release(slot);
    REQUIRE(first->take(slot) == Look::ready);
  }
  const auto successor = queue.reader();
  for (const std::uint64_t sequence : {1, 2, 3}) {
    REQUIRE(successor->take(slot) == Look::ready);
    CHECK(slot.sequence == sequence);
    CHECK(slot.redelivered == (sequence == 1));
    CHECK(rig::intact(slot));
    successor->release(slot);
  }
}

TEST_CASE("a successor writer goes on with the sequence, and what was not published is gone") {
  rig::Rig queue;
  const auto reader = queue.reader();
  for (std::uint64_t generation = 0; generation < 5; ++generation) {
    const auto writer = queue.writer();
    CHECK(writer->sequence() == 2 * generation);
    for (int i = 0; i < 2; ++i) REQUIRE(rig::write(*writer, 16) == Room::ready);
    writer->flush();
    REQUIRE(rig::write(*writer, 500) == Room::ready);  // killed before its flush
  }
  Slot slot;
  for (std::uint64_t sequence = 0; sequence < 10; ++sequence) {
    REQUIRE(reader->take(slot) == Look::ready);
    CHECK(slot.sequence == sequence);
    CHECK(slot.size == 16);
    reader->release(slot);
  }
  CHECK(reader->take(slot) == Look::empty);
}

TEST_CASE("a message larger than the ring passes through it") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  const std::uint64_t total = 3 * queue.segment().capacity() + 12'345;
  Slot slot;
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    std::uint64_t done = 0;
    Look look = Look::empty;
    while (done < total) {
      const std::uint64_t size = std::min(writer->fragment(), total - done);
      if (writer->reserve(size) == Room::ready) {
        for (std::uint64_t at = 0; at < size; ++at) writer->slot()[at] = rig::content(sequence, done + at);
        writer->commit(total, done, size, false);
        writer->flush();
        done += size;
      } else {
        look = reader->take(slot);
        REQUIRE(look == Look::empty);
      }
    }
    REQUIRE(reader->take(slot) == Look::ready);
    CHECK(slot.sequence == sequence);
    CHECK(slot.size == total);
    CHECK(rig::intact(slot));
    reader->release(slot);
  }
}

TEST_CASE("a scribbled slot is corrupt, whatever the scribble") {
  for (int kind = 0; kind < 5; ++kind) {
    CAPTURE(kind);
    rig::Rig queue;
    const auto writer = queue.writer();
    const auto reader = queue.reader(0, true);
    REQUIRE(rig::write(*writer, 100, true) == Room::ready);
    writer->flush();
    std::byte* const ring = queue.segment().ring_for_writing();
    auto* const header = reinterpret_cast<shm::SlotHeader*>(ring);
    switch (kind) {
      case 0: header->size = ~std::uint64_t{0}; break;
      case 1: header->size = 1 << 20; break;
      case 2: header->offset = ~std::uint64_t{0}; break;
      case 3: header->checksum ^= 1; break;
      default: ring[shm::kSlotHeader + 5] ^= std::byte{1}; break;
    }
    Slot slot;
    CHECK(reader->take(slot) == Look::corrupt);
    CHECK(reader->take(slot) == Look::corrupt);
  }
}

TEST_CASE("a scribbled cursor is corrupt on both sides") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  queue.segment().control().published.cursor.store(1 << 30);
  Slot slot;
  CHECK(reader->take(slot) == Look::corrupt);
  queue.segment().reader(0).released.cursor.store(1 << 30);
  CHECK(rig::write(*writer, 16) == Room::corrupt);
}

TEST_CASE("without readers nothing gates") {
  rig::Rig queue(0);
  const auto writer = queue.writer();
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(rig::write(*writer, 1000) == Room::ready);
    writer->flush();
  }
}

TEST_CASE("a dropped reader no longer gates, and learns it") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  while (rig::write(*writer, 1000) == Room::ready) writer->flush();
  writer->drop(0);
  CHECK(rig::write(*writer, 1000) == Room::ready);
  writer->flush();
  Slot slot;
  CHECK(reader->ready());
  CHECK(reader->take(slot) == Look::dropped);
}

}  // namespace
