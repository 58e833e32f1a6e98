// A writer or a reader that is killed at any of its stores: its successor goes on, and nothing is lost or invented.
#include <doctest/doctest.h>
#include <poll.h>

#include <vector>

#include "../rig.h"
#include "../stepper.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

// Takes and releases everything; each message must be intact and follow the one before. Returns the number after the
// last.
std::uint64_t drain(queue::Reader& reader, std::uint64_t expected) {
  Slot slot;
  for (;;) {
    const Look look = reader.take(slot);
    if (look != Look::ready) {
      REQUIRE(look == Look::empty);
      return expected;
    }
    REQUIRE(slot.sequence == expected++);
    REQUIRE(rig::intact(slot));
    reader.release(slot);
  }
}

// What a successor writer and a fresh reader of rank 0 make of the bytes that a killed writer left behind.
void go_on(const rig::Rig& left, std::uint64_t first, std::uint64_t cursor_before, std::uint64_t before,
           std::uint64_t cursor_after, std::uint64_t after) {
  rig::Rig queue = left.copy();
  const std::uint64_t published = queue.segment().control().published.cursor.load();
  REQUIRE((published == cursor_before || published == cursor_after));
  const auto successor = queue.writer();
  REQUIRE(successor->cursor() == published);
  REQUIRE(successor->sequence() == (published == cursor_before ? before : after));
  successor->ring_all();
  CHECK(shm::doorbell::drain(queue.bell(1)));  // whoever slept through the death looks again
  const auto reader = queue.reader();
  std::uint64_t next = drain(*reader, first);
  REQUIRE(next == successor->sequence());
  // Three generations more, so that both journal entries are used again.
  for (int i = 0; i < 3; ++i) {
    REQUIRE(rig::write(*successor, 100) == Room::ready);
    successor->flush();
    next = drain(*reader, next);
  }
  REQUIRE(next == successor->sequence());
}

TEST_CASE("killed at any store of a publish: the journal says where the successor goes on") {
  for (int generation = 0; generation < 3; ++generation) {
    for (const int batch : {1, 3}) {
      CAPTURE(generation);
      CAPTURE(batch);
      rig::Rig queue;
      const auto writer = queue.writer();
      for (int i = 0; i < generation; ++i) {
        REQUIRE(rig::write(*writer, 50) == Room::ready);
        writer->flush();
      }
      queue.segment().reader(0).park.epoch.store(9);  // asleep, so that the bell is rung too
      const std::uint64_t cursor = writer->cursor(), sequence = writer->sequence();
      for (int i = 0; i < batch; ++i) REQUIRE(rig::write(*writer, 70) == Room::ready);
      bool moved = false;
      const std::size_t looks = rig::at_every_store(
          queue.control_bytes(), [&] { writer->flush(); },
          [&] {
            moved = queue.segment().control().published.cursor.load() == writer->cursor();
            pollfd bell{queue.bell(1), POLLIN, 0};
            if (poll(&bell, 1, 0) == 1) CHECK(moved);  // never rung for what cannot be seen yet
            go_on(queue, 0, cursor, sequence, writer->cursor(), writer->sequence());
          });
      CHECK(moved);
      CHECK(looks >= 4);  // before, the journal, W, the time of the ring
    }
  }
}

TEST_CASE("killed at any store of the last fragment: the message is there, or its number is used again") {
  rig::Rig queue;
  const auto writer = queue.writer();
  constexpr std::uint64_t kTotal = 3'000, kPart = 1'000;
  for (std::uint64_t done = 0; done < kTotal - kPart; done += kPart) {
    REQUIRE(rig::write_fragment(*writer, kTotal, done, kPart) == Room::ready);
  }
  const std::uint64_t cursor = writer->cursor();
  REQUIRE(writer->sequence() == 0);
  REQUIRE(writer->reserve(kPart) == Room::ready);
  rig::fill(writer->slot(), 0, kTotal - kPart, kPart);
  writer->commit(kTotal, kTotal - kPart, kPart, false);
  REQUIRE(writer->sequence() == 1);
  const std::size_t looks = rig::at_every_store(
      queue.control_bytes(), [&] { writer->flush(); },
      [&] { go_on(queue, 0, cursor, 0, writer->cursor(), 1); });
  CHECK(looks >= 3);  // before, the journal, W
}

TEST_CASE("killed at any store of a fragment in the middle: the partial message is discarded") {
  rig::Rig queue;
  const auto writer = queue.writer();
  REQUIRE(rig::write_fragment(*writer, 3'000, 0, 1'000) == Room::ready);
  const std::uint64_t cursor = writer->cursor();
  REQUIRE(writer->reserve(1'000) == Room::ready);
  rig::fill(writer->slot(), 0, 1'000, 1'000);
  writer->commit(3'000, 1'000, 1'000, false);
  const std::size_t looks = rig::at_every_store(
      queue.control_bytes(), [&] { writer->flush(); },
      [&] { go_on(queue, 0, cursor, 0, writer->cursor(), 0); });
  CHECK(looks >= 3);  // before, the journal, W
}

TEST_CASE("killed at any store of a join's confirmation: the rank joins then or at the successor, without a gap") {
  rig::Rig queue(2);
  const auto writer = queue.writer();
  const auto other = queue.reader(0);
  queue.leave(1);
  for (int i = 0; i < 3; ++i) REQUIRE(rig::write(*writer, 40) == Room::ready);
  writer->flush();
  { const auto asks = queue.reader(1); }  // its process is killed, or goes on: the request stands
  REQUIRE(rig::write(*writer, 40) == Room::ready);
  const std::size_t looks = rig::at_every_store(
      queue.control_bytes(), [&] { writer->flush(); },
      [&] {
        rig::Rig left = queue.copy();
        const auto successor = left.writer();
        const auto joined = left.reader(1);
        successor->ring_all();
        CHECK(queue::standing(left.segment(), 1) == queue::Standing::gates);
        REQUIRE(rig::write(*successor, 40) == Room::ready);
        successor->flush();
        Slot slot;
        REQUIRE(joined->take(slot) == Look::ready);
        // Confirmed by the one: message 3, by the other: what it published itself, which is 3 or 4.
        REQUIRE(slot.sequence >= 3);
        REQUIRE(slot.sequence <= 4);
        joined->release(slot);
        CHECK(drain(*joined, slot.sequence + 1) == successor->sequence());
        CHECK(drain(*left.reader(0), 0) == successor->sequence());
      });
  CHECK(looks >= 7);
}

struct Fate {
  std::uint64_t sequence;
  bool taken, released;
};

// A successor of the reader whose slots fared like `fates` gets the oldest unreleased one first, and all after it.
void succeed(const rig::Rig& left, const std::vector<Fate>& fates, bool in_midst) {
  rig::Rig queue = left.copy();
  const auto successor = queue.reader();
  Slot slot;
  std::uint64_t expected = 0;
  for (bool first = true; successor->take(slot) == Look::ready; first = false) {
    if (first) expected = slot.sequence;
    REQUIRE(slot.sequence == expected++);
    REQUIRE(rig::intact(slot));
    const Fate& fate = fates[slot.sequence];
    if (fate.taken) CHECK(slot.redelivered);
    if (!fate.taken && !in_midst) CHECK_FALSE(slot.redelivered);
    if (first) {
      for (const Fate& earlier : fates) {
        if (earlier.sequence < slot.sequence && !in_midst) CHECK(earlier.released);
      }
    }
    successor->release(slot);
  }
  CHECK(expected == fates.size());
}

TEST_CASE("killed at any store of a take or a release: the successor gets what was not released, marked") {
  rig::Rig queue;
  const auto writer = queue.writer();
  constexpr std::uint64_t kMessages = 5;
  for (std::uint64_t i = 0; i < kMessages; ++i) REQUIRE(rig::write(*writer, 64) == Room::ready);
  writer->flush();
  const auto reader = queue.reader();
  std::vector<Fate> fates;
  for (std::uint64_t i = 0; i < kMessages; ++i) fates.push_back({i, false, false});
  std::vector<Slot> slots(4);

  // Each step is watched in a child and then done for real.
  const auto watched = [&](auto act) {
    rig::at_every_store(queue.control_bytes(), act, [&] { succeed(queue, fates, true); });
  };
  const auto take = [&](std::size_t i) {
    rig::Rig aside = queue.copy();
    watched([&] { reader->take(slots[i]); });
    std::copy(aside.bytes().begin(), aside.bytes().end(), queue.bytes().begin());  // undo what the child did
    REQUIRE(reader->take(slots[i]) == Look::ready);
    fates[i].taken = true;
    succeed(queue, fates, false);
  };
  const auto release = [&](std::size_t i) {
    rig::Rig aside = queue.copy();
    watched([&] { reader->release(slots[i]); });
    std::copy(aside.bytes().begin(), aside.bytes().end(), queue.bytes().begin());
    reader->release(slots[i]);
    fates[i].released = true;
    succeed(queue, fates, false);
  };
  take(0);
  take(1);
  take(2);
  release(1);  // not the oldest: nothing may move
  release(0);  // both
  take(3);
  release(3);
  release(2);
}

TEST_CASE("a reader killed between its release and its ring leaves the bell to its successor or to the next release") {
  rig::Rig queue(1, rig::kPageBytes);
  const auto writer = queue.writer();
  while (rig::write(*writer, 500) == Room::ready) writer->flush();
  REQUIRE_FALSE(writer->announce());
  const auto reader = queue.reader();
  Slot slot;
  REQUIRE(reader->take(slot) == Look::ready);
  const std::size_t looks = rig::at_every_store(
      queue.control_bytes(), [&] { reader->release(slot); },
      [&] {
        // At every point: the writer's look finds room, or a successor that goes on releasing rings.
        rig::Rig left = queue.copy();
        const auto successor = left.reader();
        Slot next;
        REQUIRE(successor->take(next) == Look::ready);
        successor->release(next);
        CHECK(shm::doorbell::drain(left.bell(0)));
      });
  CHECK(looks == 2);
  CHECK(shm::doorbell::drain(queue.bell(0)));
}

}  // namespace
