// Scribbles over anything that is shared: an answer, never a read or write outside the mapping (ASan and the checks
// watch), never a crash, never an endless loop.
#include <doctest/doctest.h>

#include <random>
#include <stdexcept>

#include "../rig.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

using Random = std::mt19937_64;

// Values that are near something: the ends of the range, of the ring, of what was there.
std::uint64_t nasty(Random& random, std::uint64_t old, std::uint64_t capacity) {
  switch (random() % 10) {
    case 0: return ~std::uint64_t{0} - random() % 3;
    case 1: return random();
    case 2: return old + 1;
    case 3: return old - 1;
    case 4: return old + 64 * (random() % 4);
    case 5: return old + capacity + 64 * (random() % 3) - 64;
    case 6: return old - capacity;
    case 7: return old ^ (std::uint64_t{1} << random() % 64);
    case 8: return (std::uint64_t{1} << 63) + random() % 100;
    default: return random() % (2 * capacity);
  }
}

void scribble(Random& random, std::span<std::byte> bytes, std::uint64_t capacity) {
  auto* const word = reinterpret_cast<Word*>(bytes.data() + random() % (bytes.size() / 8) * 8);
  word->store(nasty(random, word->load(), capacity));
}

// Reads all that a slot claims to have: what lies outside the mapping would show.
void read_all(const Slot& slot) {
  volatile std::byte sink{};
  for (std::uint64_t at = 0; at < slot.size; ++at) sink = slot.bytes[at];
  static_cast<void>(sink);
}

// Takes and releases up to `most` slots, whatever comes.
void use(rig::Rig& queue, queue::Reader& reader, Random& random, int most) {
  const std::byte* const ring = queue.segment().ring_for_reading();
  for (int i = 0; i < most; ++i) {
    Slot slot;
    if (reader.take(slot) != Look::ready) continue;
    if (slot.owned == nullptr) {
      REQUIRE(slot.bytes >= ring);
      REQUIRE(slot.bytes + slot.size <= ring + 2 * queue.segment().capacity());
      REQUIRE(slot.size <= queue.segment().capacity());
    }
    read_all(slot);
    if (random() % 8 == 0) {
      reader.give_back(slot);
    } else {
      reader.release(slot);
    }
  }
}

void write_some(queue::Writer& writer, Random& random) {
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t size = random() % (random() % 4 == 0 ? writer.largest() + 1 : 700);
    if (random() % 4 == 0 && size > 1 && size <= writer.fragment()) {
      static_cast<void>(rig::write_fragment(writer, 2 * size, random() % 2 * size, size));
    } else {
      static_cast<void>(rig::write(writer, size, random() % 2 == 0));
    }
  }
  writer.flush();
}

TEST_CASE("random scribbles over control words and slot headers") {
  Random random(1234);
  int corrupt = 0, refused = 0;
  for (int round = 0; round < 1'500; ++round) {
    rig::Rig queue(2, 2 * rig::kPageBytes);
    auto writer = queue.writer();
    auto reader = queue.reader(0, round % 2 == 0);
    for (int step = 0; step < 8; ++step) {
      write_some(*writer, random);
      use(queue, *reader, random, 3);
      const std::uint64_t capacity = queue.segment().capacity();
      if (random() % 2 == 0) {
        scribble(random, queue.control_bytes(), capacity);
      } else {
        // A header of a slot that is probably not read yet.
        const std::uint64_t at = queue.segment().reader(0).released.cursor.load() % capacity & ~std::uint64_t{63};
        scribble(random, {queue.segment().ring_for_writing() + at, shm::kSlotHeader}, capacity);
      }
      Slot slot;
      corrupt += reader->take(slot) == Look::corrupt ? 1 : 0;
      corrupt += writer->reserve(random() % 100) == Room::corrupt ? 1 : 0;
      static_cast<void>(reader->ready());
      static_cast<void>(writer->ready());
      if (random() % 4 == 0) static_cast<void>(reader->announce());
      if (random() % 4 == 0) static_cast<void>(writer->announce());
      if (random() % 10 == 0) writer->drop(static_cast<std::uint32_t>(random() % 2));
      if (random() % 10 == 0) writer->ring_all();
      if (random() % 6 == 0) reader = queue.reader(0, random() % 2 == 0);  // a successor meets it as well
      if (random() % 6 == 0) {
        try {
          writer = queue.writer();
        } catch (const std::runtime_error&) {
          ++refused;
        }
      }
    }
  }
  CHECK(corrupt > 100);
  CHECK(refused > 10);
}

TEST_CASE("noise all over the ring") {
  Random random(77);
  for (int round = 0; round < 300; ++round) {
    rig::Rig queue(1, 2 * rig::kPageBytes);
    const auto writer = queue.writer();
    const auto reader = queue.reader(0, round % 2 == 0);
    while (rig::write(*writer, 100) == Room::ready) writer->flush();
    const auto ring = queue.bytes().subspan(shm::ring_offset(1));
    for (std::size_t at = 0; at < ring.size(); at += 8) {
      if (random() % 3 != 0) scribble(random, ring.subspan(at, 8), ring.size());
    }
    use(queue, *reader, random, 20);
  }
}

TEST_CASE("a published cursor that cannot be is corrupt, and stays out of the ring") {
  rig::Rig queue;
  const std::uint64_t capacity = queue.segment().capacity();
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  Slot slot;
  for (int i = 0; i < 3; ++i) REQUIRE(rig::write(*writer, 0) == Room::ready);
  writer->flush();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(reader->take(slot) == Look::ready);
    reader->release(slot);
  }
  Word& published = queue.segment().control().published.cursor;
  const std::uint64_t now = published.load();
  for (const std::uint64_t wrong : {now - 64, now + 1, now + 32, now + capacity + 64, std::uint64_t{0},
                                    ~std::uint64_t{0}, ~std::uint64_t{63}}) {
    CAPTURE(wrong);
    published.store(wrong);
    CHECK(reader->ready());
    CHECK(reader->take(slot) == Look::corrupt);
  }
  published.store(now);
  CHECK(reader->take(slot) == Look::empty);  // what was a scribble only is over
}

TEST_CASE("a released cursor that cannot be is corrupt for the writer, awake or asleep") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  const std::uint64_t capacity = queue.segment().capacity();
  for (int lap = 0; lap < 3; ++lap) {
    while (rig::write(*writer, 1'000) == Room::ready) writer->flush();
    Slot slot;
    while (lap < 2 && reader->take(slot) == Look::ready) reader->release(slot);
  }
  REQUIRE_FALSE(writer->ready());
  Word& released = queue.segment().reader(0).released.cursor;
  const std::uint64_t now = released.load();
  for (const std::uint64_t wrong : {writer->cursor() + 64, writer->cursor() + capacity,
                                    writer->cursor() - capacity - 64, std::uint64_t{0}, ~std::uint64_t{0} - 63,
                                    ~std::uint64_t{0}}) {
    CAPTURE(wrong);
    released.store(wrong);
    CHECK(writer->ready());
    CHECK(rig::write(*writer, 1'000) == Room::corrupt);
  }
  released.store(now);
  CHECK(rig::write(*writer, 1'000) == Room::full);
}

TEST_CASE("a published cursor that no journal entry vouches for refuses a successor") {
  rig::Rig queue;
  {
    const auto writer = queue.writer();
    REQUIRE(rig::write(*writer, 100) == Room::ready);
    writer->flush();
  }
  queue.segment().control().published.cursor.store(64 * 1'000);
  CHECK_THROWS_AS(queue.writer(), std::runtime_error);
}

TEST_CASE("a stream that cannot be that long refuses a successor") {
  rig::Rig queue;
  shm::Control& control = queue.segment().control();
  shm::JournalEntry& journal = control.journal.entry[0];
  for (const auto& [cursor, sequence] : {std::pair{shm::kFarthest, std::uint64_t{0}}, {0 - shm::kSlotAlign, 0},
                                         {shm::kSlotAlign, ~std::uint64_t{0}}, {shm::kSlotAlign, shm::kFarthest}}) {
    control.published.cursor.store(cursor);
    journal.cursor.store(cursor);
    journal.sequence.store(sequence);
    CHECK_THROWS_AS(queue.writer(), std::runtime_error);
  }
  journal.sequence.store(shm::kFarthest - 1);
  CHECK(queue.writer()->sequence() == shm::kFarthest - 1);
}

TEST_CASE("a scribbled cursor that a void journal entry happens to name refuses a successor") {
  rig::Rig queue;
  shm::Control& control = queue.segment().control();
  control.journal.entry[1].cursor.store(~std::uint64_t{0});  // a writer died while it wrote the entry
  control.published.cursor.store(~std::uint64_t{0});
  CHECK_THROWS_AS(queue.writer(), std::runtime_error);
}

}  // namespace
