// Who is rung, how often, and for what: a ring costs a system call and a wake-up, and a missing one costs everything.
#include <doctest/doctest.h>

#include "../race.h"
#include "../rig.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;
using rig::rung;

unsigned publish(queue::Writer& writer) {
  REQUIRE(rig::write(writer, 500) == Room::ready);
  return writer.flush();
}

TEST_CASE("a sleeper is rung for once, and again when it has lain down again") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  CHECK(publish(*writer) == 0);
  Slot slot;
  for (int sleep = 0; sleep < 3; ++sleep) {
    while (reader->take(slot) == Look::ready) reader->release(slot);
    REQUIRE_FALSE(reader->announce());
    CHECK(publish(*writer) == 1);
    CHECK(shm::doorbell::drain(queue.bell(1)));
    CHECK(publish(*writer) == 0);
    CHECK_FALSE(rung(queue.bell(1)));
  }
}

// Full: each reader holds its oldest slot, and the writer sleeps for the room of two.
struct Full {
  Full() : queue(2, rig::kPageBytes), writer(queue.writer()) {
    while (rig::write(*writer, 500) == Room::ready) writer->flush();
    REQUIRE(writer->reserve(1'100) == Room::full);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      readers[rank] = queue.reader(rank);
      for (Slot& slot : slots[rank]) REQUIRE(readers[rank]->take(slot) == Look::ready);
    }
    REQUIRE_FALSE(writer->announce());
  }
  rig::Rig queue;
  std::unique_ptr<queue::Writer> writer;
  std::unique_ptr<queue::Reader> readers[2];
  Slot slots[2][4];
};

TEST_CASE("a release that does not make the room rings nobody, and leaves the ring to the one that does") {
  Full full;
  CHECK_FALSE(full.readers[0]->release(full.slots[0][0]));
  CHECK_FALSE(full.readers[0]->release(full.slots[0][1]));
  CHECK_FALSE(full.readers[0]->release(full.slots[0][2]));
  CHECK_FALSE(full.readers[1]->release(full.slots[1][0]));
  CHECK_FALSE(rung(full.queue.bell(0)));
  CHECK_FALSE(full.writer->ready());
  CHECK(full.readers[1]->release(full.slots[1][1]));  // two slots of 576 and the 64 bytes behind the last make 1,216
  CHECK(rung(full.queue.bell(0)));
  CHECK(full.writer->ready());
}

TEST_CASE("a writer is rung for once, and again when it has lain down again") {
  Full full;
  for (int i = 0; i < 2; ++i) full.readers[0]->release(full.slots[0][i]);
  for (int i = 0; i < 2; ++i) full.readers[1]->release(full.slots[1][i]);
  CHECK(shm::doorbell::drain(full.queue.bell(0)));
  CHECK_FALSE(full.readers[1]->release(full.slots[1][2]));
  CHECK_FALSE(rung(full.queue.bell(0)));
  while (rig::write(*full.writer, 500) == Room::ready) full.writer->flush();
  REQUIRE_FALSE(full.writer->announce());
  CHECK(full.readers[0]->release(full.slots[0][2]));
  CHECK(rung(full.queue.bell(0)));
}

}  // namespace
