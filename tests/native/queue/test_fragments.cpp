// Messages larger than the ring, in fragments: given up midway, taken over by either side, joined in the middle.
#include <doctest/doctest.h>

#include "../rig.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

constexpr std::uint64_t kTotal = 10'000, kPart = 2'500;

void part(queue::Writer& writer, std::uint64_t index) {
  REQUIRE(rig::write_fragment(writer, kTotal, index * kPart, kPart) == Room::ready);
}
void whole(queue::Writer& writer) {
  REQUIRE(rig::write(writer, 100) == Room::ready);
  writer.flush();
}

TEST_CASE("a message is there with its last fragment, private and in the order of the ring") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader(0, false);
  whole(*writer);
  Slot slot;
  for (std::uint64_t i = 0; i < 3; ++i) part(*writer, i);
  CHECK(writer->sequence() == 1);
  Slot first;
  REQUIRE(reader->take(first) == Look::ready);
  CHECK(first.owned == nullptr);
  CHECK(reader->take(slot) == Look::empty);
  part(*writer, 3);
  whole(*writer);
  CHECK(writer->sequence() == 3);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 1);
  CHECK(slot.size == kTotal);
  CHECK(slot.owned == slot.bytes);
  CHECK(rig::intact(slot));
  Slot last;
  REQUIRE(reader->take(last) == Look::ready);
  CHECK(last.sequence == 2);
  reader->release(last);
  reader->release(slot);
  CHECK(queue.segment().reader(0).released.cursor.load() == 0);
  reader->release(first);
  CHECK(queue.segment().reader(0).released.cursor.load() == writer->cursor());
}

TEST_CASE("fragments give their bytes back as they are copied, the last one with the message") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  const Word& released = queue.segment().reader(0).released.cursor;
  Slot slot;
  for (std::uint64_t i = 0; i < 3; ++i) {
    part(*writer, i);
    CHECK(reader->take(slot) == Look::empty);
    CHECK(released.load() == writer->cursor());
  }
  const std::uint64_t before = writer->cursor();
  part(*writer, 3);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(released.load() == before);
  CHECK(reader->held() == 1);
  reader->release(slot);
  CHECK(released.load() == writer->cursor());
}

TEST_CASE("a message given back, or held, when its reader goes leaks nothing and can be taken again") {
  rig::Rig queue;
  const auto writer = queue.writer();
  for (std::uint64_t i = 0; i < 4; ++i) part(*writer, i);
  const auto reader = queue.reader();
  Slot slot;
  for (int again = 0; again < 3; ++again) {
    REQUIRE(reader->take(slot) == Look::ready);
    CHECK(rig::intact(slot));
    reader->give_back(slot);
  }
}

TEST_CASE("a writer that gives up and begins anew: the partial message is silently dropped") {
  rig::Rig queue(1, 16 * rig::kPageBytes);
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  Slot slot;
  for (std::uint64_t begun = 1; begun <= 3; ++begun) {
    for (std::uint64_t i = 0; i < begun; ++i) part(*writer, i);
    if (begun % 2 == 0) CHECK(reader->take(slot) == Look::empty);  // copied some of it, or none
  }
  for (std::uint64_t i = 0; i < 4; ++i) part(*writer, i);
  part(*writer, 0);  // and one more beginning, followed by a small message
  whole(*writer);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 0);
  CHECK(slot.size == kTotal);
  CHECK(rig::intact(slot));
  reader->release(slot);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 1);
  CHECK(slot.size == 100);
  reader->release(slot);
  CHECK(reader->take(slot) == Look::empty);
}

TEST_CASE("a writer that dies in the middle: its successor uses the number again, for a message of any kind") {
  for (const bool small : {true, false}) {
    CAPTURE(small);
    for (std::uint64_t done = 1; done < 4; ++done) {
      CAPTURE(done);
      rig::Rig queue;
      const auto reader = queue.reader();
      Slot slot;
      {
        const auto writer = queue.writer();
        whole(*writer);
        for (std::uint64_t i = 0; i < done; ++i) part(*writer, i);
        REQUIRE(reader->take(slot) == Look::ready);
        reader->release(slot);
        CHECK(reader->take(slot) == Look::empty);
      }
      const auto successor = queue.writer();
      CHECK(successor->sequence() == 1);
      if (small) {
        whole(*successor);
      } else {
        for (std::uint64_t i = 0; i < 4; ++i) part(*successor, i);
      }
      REQUIRE(reader->take(slot) == Look::ready);
      CHECK(slot.sequence == 1);
      CHECK(slot.size == (small ? 100 : kTotal));
      CHECK(rig::intact(slot));
      reader->release(slot);
    }
  }
}

TEST_CASE("a successor reader in the middle of a message tells once that it is lost, and goes on") {
  for (std::uint64_t copied = 1; copied < 4; ++copied) {
    CAPTURE(copied);
    rig::Rig queue;
    const auto writer = queue.writer();
    Slot slot;
    {
      const auto reader = queue.reader();
      for (std::uint64_t i = 0; i < copied; ++i) part(*writer, i);
      CHECK(reader->take(slot) == Look::empty);
    }
    const auto successor = queue.reader();
    CHECK(successor->take(slot) == Look::empty);
    for (std::uint64_t i = copied; i < 4; ++i) part(*writer, i);
    CHECK(successor->take(slot) == Look::lost);
    CHECK(successor->take(slot) == Look::empty);
    for (std::uint64_t i = 0; i < 4; ++i) part(*writer, i);
    REQUIRE(successor->take(slot) == Look::ready);
    CHECK(slot.sequence == 1);
    CHECK(rig::intact(slot));
    successor->release(slot);
    CHECK(queue.segment().reader(0).released.cursor.load() == writer->cursor());
  }
}

TEST_CASE("a message that its reader held when it died is lost, told by its last fragment") {
  rig::Rig queue;
  const auto writer = queue.writer();
  Slot slot;
  {
    const auto reader = queue.reader();
    for (std::uint64_t i = 0; i < 4; ++i) part(*writer, i);
    REQUIRE(reader->take(slot) == Look::ready);
    reader->give_back(slot);  // not a leak of this test
  }
  whole(*writer);
  const auto successor = queue.reader();
  CHECK(successor->take(slot) == Look::lost);
  REQUIRE(successor->take(slot) == Look::ready);
  CHECK(slot.sequence == 1);
  successor->release(slot);
}

TEST_CASE("a message whose writer and reader both died in the middle is told once") {
  rig::Rig queue;
  Slot slot;
  {
    const auto writer = queue.writer();
    const auto reader = queue.reader();
    part(*writer, 0);
    CHECK(reader->take(slot) == Look::empty);
    part(*writer, 1);
    part(*writer, 2);
  }
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  CHECK(reader->take(slot) == Look::lost);
  CHECK(reader->take(slot) == Look::empty);
  for (std::uint64_t i = 0; i < 4; ++i) part(*writer, i);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 0);
  CHECK(rig::intact(slot));
  reader->release(slot);
}

TEST_CASE("who joins in the middle of a message skips the rest without a word") {
  rig::Rig queue;
  const auto writer = queue.writer();
  queue.leave(0);
  part(*writer, 0);
  const auto reader = queue.reader();
  part(*writer, 1);
  Slot slot;
  CHECK(reader->take(slot) == Look::empty);
  part(*writer, 2);
  part(*writer, 3);
  CHECK(reader->take(slot) == Look::empty);
  whole(*writer);
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.sequence == 1);
  reader->release(slot);
}

TEST_CASE("fragments that do not follow one another are corrupt") {
  const auto after_the_first = [](std::uint64_t total, std::uint64_t offset, std::uint64_t sequence_step) {
    rig::Rig queue;
    const auto writer = queue.writer();
    const auto reader = queue.reader();
    part(*writer, 0);
    const std::uint64_t at = writer->cursor();
    part(*writer, 1);
    auto* const header = reinterpret_cast<shm::SlotHeader*>(queue.segment().ring_for_writing() + at);
    header->total = total;
    header->offset = offset;
    header->sequence += sequence_step;
    Slot slot;
    return reader->take(slot);
  };
  CHECK(after_the_first(kTotal, kPart, 0) == Look::empty);
  CHECK(after_the_first(kTotal, kPart + 1, 0) == Look::corrupt);
  CHECK(after_the_first(kTotal, kPart - 1, 0) == Look::corrupt);
  CHECK(after_the_first(kTotal + 1, kPart, 0) == Look::corrupt);
  CHECK(after_the_first(kTotal, kPart, 1) == Look::corrupt);
  CHECK(after_the_first(2 * kPart - 1, kPart, 0) == Look::corrupt);  // beyond its own end
}

TEST_CASE("a beginning that claims more bytes than any process has room for is corrupt, not a crash") {
  for (const std::uint64_t total : {~std::uint64_t{0}, ~std::uint64_t{0} >> 1, shm::kLargestMessage + 1}) {
    CAPTURE(total);
    rig::Rig queue;
    const auto writer = queue.writer();
    const auto reader = queue.reader();
    part(*writer, 0);
    reinterpret_cast<shm::SlotHeader*>(queue.segment().ring_for_writing())->total = total;
    Slot slot;
    CHECK(reader->take(slot) == Look::corrupt);
    CHECK(reader->take(slot) == Look::corrupt);
  }
}

TEST_CASE("a message for which there is no memory is consumed only once there is") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  part(*writer, 0);
  auto* const header = reinterpret_cast<shm::SlotHeader*>(queue.segment().ring_for_writing());
  header->total = shm::kLargestMessage;
  Slot slot;
  CHECK(reader->take(slot) == Look::no_memory);
  CHECK(reader->take(slot) == Look::no_memory);
  header->total = kTotal;
  for (std::uint64_t i = 1; i < 4; ++i) {
    CHECK(reader->take(slot) == Look::empty);
    part(*writer, i);
  }
  REQUIRE(reader->take(slot) == Look::ready);
  CHECK(slot.size == kTotal);
  reader->release(slot);
}

}  // namespace
