// The drawn bytes: regions follow one another without touching, and no two writing processes share a line.
#include "shm/layout.h"

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace aiospin::shm;
using aiospin::kLine;

constexpr std::uint64_t kReaderCounts[] = {0, 1, 2, 3, 31, 220, 221, 223, 224, kMaxReaders};

TEST_CASE("regions are ordered, aligned and large enough for every number of readers") {
  for (const std::uint64_t readers : kReaderCounts) {
    CAPTURE(readers);
    CHECK(kBellsOffset + sizeof(BellIdentity) * (readers + 1) <= control_offset(readers));
    CHECK(control_offset(readers) + sizeof(Control) + sizeof(ReaderLines) * readers == gates_offset(readers));
    CHECK(gates_offset(readers) + sizeof(Gate) * readers <= ring_offset(readers));
    CHECK(control_offset(readers) % kPage == 0);
    CHECK(gates_offset(readers) % kLine == 0);
    CHECK(ring_offset(readers) % kPage == 0);
  }
}

TEST_CASE("words of different writing processes never share a line") {
  // The owner, the writer and each reader begin on lines of their own, and no structure ends in the middle of one.
  CHECK(sizeof(OwnerLine) % kLine == 0);
  CHECK(sizeof(PublishedLine) == kLine);
  CHECK(sizeof(JournalLine) % kLine == 0);
  CHECK(sizeof(RoomLine) % kLine == 0);
  CHECK(sizeof(WriterSeatLine) % kLine == 0);
  CHECK(sizeof(ReleasedLine) == kLine);
  CHECK(sizeof(ParkLine) % kLine == 0);
  CHECK(sizeof(ReaderSeatLine) % kLine == 0);
  for (const std::uint64_t readers : kReaderCounts) {
    CHECK((control_offset(readers) + sizeof(Control)) % kLine == 0);
  }
}

TEST_CASE("a stride holds the header and the payload and keeps slots aligned") {
  CHECK(stride(0) == kSlotHeader);
  CHECK(stride(1) == kSlotHeader + kSlotAlign);
  for (std::uint64_t payload = 0; payload <= 4 * kSlotAlign; ++payload) {
    CAPTURE(payload);
    CHECK(stride(payload) % kSlotAlign == 0);
    CHECK(stride(payload) >= kSlotHeader + payload);
    CHECK(stride(payload) < kSlotHeader + payload + kSlotAlign);
  }
}

TEST_CASE("align_up returns the next multiple and keeps one that is aligned") {
  CHECK(align_up(0, 64) == 0);
  CHECK(align_up(1, 64) == 64);
  CHECK(align_up(64, 64) == 64);
  CHECK(align_up(65, 64) == 128);
  CHECK(align_up(4097, kPage) == 2 * kPage);
}

}  // namespace
