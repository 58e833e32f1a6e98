// Slots of every size at every place of the ring, the seam included: whole, in order, and never over what is held.
#include <doctest/doctest.h>

#include <deque>
#include <random>

#include "../rig.h"
#include "../sanitized.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

TEST_CASE("every size class passes the seam of the ring") {
  rig::Rig queue;
  const std::uint64_t capacity = queue.segment().capacity();
  const auto writer = queue.writer();
  const auto reader = queue.reader(0, true);
  CHECK(writer->largest() == capacity - shm::kSlotHeader);
  std::vector<std::uint64_t> sizes{0, 1, 63, 64, 65, 127, 128, 129};
  for (std::uint64_t size = 192; size < capacity; size *= 2) {
    sizes.insert(sizes.end(), {size - 1, size, size + 1});
  }
  // Above half the ring two slots never fit together, and a queue that padded at the seam would be stuck.
  sizes.insert(sizes.end(), {capacity / 2, capacity / 2 + 64, capacity - 128, capacity - 65, capacity - 64});
  std::uint64_t across = 0;
  for (const std::uint64_t size : sizes) {
    CAPTURE(size);
    REQUIRE(size <= writer->largest());
    // Until it has begun everywhere it can, for small ones, or many times, for large ones.
    for (int i = 0; i < 70 / rig::kSlowdown; ++i) {
      const std::uint64_t begin = writer->cursor() % capacity;
      across += begin + shm::stride(size) > capacity ? 1 : 0;
      REQUIRE(rig::write(*writer, size, true) == Room::ready);
      writer->flush();
      Slot slot;
      REQUIRE(reader->take(slot) == Look::ready);
      REQUIRE(slot.size == size);
      REQUIRE(slot.begin % capacity == begin);
      REQUIRE(rig::intact(slot));
      reader->release(slot);
    }
  }
  CHECK(across > 15);
}

TEST_CASE("what is held stays as it is while everything around it is written, at random") {
  std::mt19937 random(64);
  for (int round = 0; round < 20 / rig::kSlowdown; ++round) {
    rig::Rig queue(2);
    const auto writer = queue.writer();
    struct Side {
      std::unique_ptr<queue::Reader> reader;
      std::deque<Slot> held;
      std::uint64_t next = 0;
    };
    Side sides[2] = {{queue.reader(0), {}}, {queue.reader(1), {}}};
    bool filled = false;
    for (int step = 0; step < 1'500; ++step) {
      const bool large = random() % 20 == 0;
      const std::uint64_t size = random() % (large ? writer->largest() : 600);
      if (random() % 2 == 0) {
        const Room room = rig::write(*writer, size);
        REQUIRE((room == Room::ready || room == Room::full));
        filled |= room == Room::full;
        if (random() % 3 == 0 || room == Room::full) writer->flush();
      }
      Side& side = sides[random() % 2];
      Slot slot;
      if (random() % 2 == 0) {
        if (side.reader->take(slot) == Look::ready) {
          REQUIRE(slot.sequence == side.next++);
          side.held.push_back(slot);
        }
      } else if (!side.held.empty()) {
        const std::size_t victim = random() % side.held.size();
        slot = side.held[victim];
        side.held.erase(side.held.begin() + static_cast<std::ptrdiff_t>(victim));
        REQUIRE(rig::intact(slot));
        side.reader->release(slot);
      }
      REQUIRE(side.reader->held() == side.held.size());
      for (const Side& each : sides) {
        if (each.held.empty()) continue;
        const Slot& any = each.held[random() % each.held.size()];
        REQUIRE(rig::intact(any));
      }
    }
    CHECK(filled);
    for (const Side& side : sides) {
      for (const Slot& slot : side.held) REQUIRE(rig::intact(slot));
    }
  }
}

TEST_CASE("a reserved slot may be committed shorter, or not at all") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  REQUIRE(writer->reserve(5'000) == Room::ready);
  std::byte* const first = writer->slot();
  REQUIRE(writer->reserve(70) == Room::ready);  // the claim before was given up
  CHECK(writer->slot() == first);
  CHECK(writer->cursor() == 0);
  rig::fill(writer->slot(), 0, 0, 3);
  writer->commit(3, 0, 3, false);
  CHECK(writer->cursor() == shm::stride(3));
  writer->flush();
  CHECK(writer->flush() == 0);  // nothing more to publish
  Slot slot;
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.size == 3);
  CHECK(rig::intact(slot));
  CHECK(reader->take(slot) == Look::empty);
}

TEST_CASE("slots given back in any order are handed out again oldest first, before what is new") {
  std::mt19937 random(8);
  for (int round = 0; round < 30; ++round) {
    rig::Rig queue;
    const auto writer = queue.writer();
    const auto reader = queue.reader();
    for (int i = 0; i < 12; ++i) REQUIRE(rig::write(*writer, 16) == Room::ready);
    writer->flush();
    std::vector<Slot> slots(8);
    for (Slot& slot : slots) REQUIRE(reader->take(slot) == Look::ready);
    std::shuffle(slots.begin(), slots.end(), random);
    std::vector<std::uint64_t> expected;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (i < 5) {
        reader->give_back(slots[i]);
        expected.push_back(slots[i].sequence);
      } else {
        reader->release(slots[i]);
      }
    }
    std::sort(expected.begin(), expected.end());
    CHECK(reader->held() == 5);
    // Nothing above the oldest of them is free.
    CHECK(queue.segment().reader(0).released.cursor.load() == expected.front() * shm::stride(16));
    for (std::uint64_t sequence = 8; sequence < 12; ++sequence) expected.push_back(sequence);
    for (const std::uint64_t sequence : expected) {
      Slot slot;
      REQUIRE(reader->take(slot) == Look::ready);
      CHECK(slot.sequence == sequence);
      reader->release(slot);
    }
    CHECK(queue.segment().reader(0).released.cursor.load() == writer->cursor());
  }
}

TEST_CASE("many copied at once are given back at once") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  for (int i = 0; i < 10; ++i) REQUIRE(rig::write(*writer, 16) == Room::ready);
  writer->flush();
  const Word& released = queue.segment().reader(0).released.cursor;
  Slot slot;
  for (int i = 0; i < 10; ++i) {
    REQUIRE(reader->take(slot) == Look::ready);
    reader->consume(slot);
    CHECK(released.load() == 0);
  }
  CHECK_FALSE(reader->settle());
  CHECK(released.load() == writer->cursor());
  CHECK_FALSE(reader->settle());
}

}  // namespace
