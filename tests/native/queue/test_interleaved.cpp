// The doorbell's races, driven: one side is stopped at every instruction, and the other does all of its part there.
//
// For each pair the story is the same: whatever the moment, a side that lay down to sleep has a byte in its bell in the
// end, or what it waits for came before it looked. Single steps show program order; what store buffers add to it is the
// model's and the threads' part.
#include <doctest/doctest.h>

#include "../race.h"
#include "../rig.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;
using rig::at_every_instruction;
using rig::Race;
using rig::rung;

struct Two {
  explicit Two(std::uint32_t readers = 1, std::uint64_t capacity = rig::kPageBytes)
      : queue(readers, capacity), writer(queue.writer()) {}
  rig::Rig queue;
  std::unique_ptr<queue::Writer> writer;
  std::unique_ptr<queue::Reader> reader, other;
  Slot slot{}, other_slot{};
  bool slept = false;
};

TEST_CASE("a reader lies down while the writer publishes") {
  std::size_t slept = 0, saw = 0;
  at_every_instruction([&] {
    const auto two = std::make_shared<Two>();
    two->reader = two->queue.reader();
    REQUIRE(rig::write(*two->writer, 8) == Room::ready);
    return Race{[two] { two->writer->flush(); },
                [two] { two->slept = !two->reader->announce(); },
                [two, &slept, &saw] {
                  REQUIRE((!two->slept || rung(two->queue.bell(1))));
                  REQUIRE(two->reader->ready());
                  ++(two->slept ? slept : saw);
                }};
  });
  CHECK(slept > 0);
  CHECK(saw > 0);
}

TEST_CASE("the writer publishes while a reader lies down") {
  std::size_t rings = 0, silent = 0;
  at_every_instruction([&] {
    const auto two = std::make_shared<Two>();
    two->reader = two->queue.reader();
    REQUIRE(rig::write(*two->writer, 8) == Room::ready);
    auto* const sleeps = reinterpret_cast<std::uint64_t*>(two->queue.bytes().data());  // the header, unused here
    return Race{[two, sleeps] { *sleeps = two->reader->announce() ? 1 : 2; },
                [two] { two->writer->flush(); },
                [two, sleeps, &rings, &silent] {
                  REQUIRE(*sleeps != 0);
                  REQUIRE((*sleeps == 1 || rung(two->queue.bell(1))));
                  ++(rung(two->queue.bell(1)) ? rings : silent);
                }};
  });
  CHECK(rings > 0);
  CHECK(silent > 0);
}

// A ring full of small slots, of which each reader has taken the first.
std::shared_ptr<Two> full_ring(std::uint32_t readers) {
  const auto two = std::make_shared<Two>(readers);
  while (rig::write(*two->writer, 500) == Room::ready) two->writer->flush();
  two->reader = two->queue.reader(0);
  REQUIRE(two->reader->take(two->slot) == Look::ready);
  if (readers > 1) {
    two->other = two->queue.reader(1);
    REQUIRE(two->other->take(two->other_slot) == Look::ready);
  }
  return two;
}

TEST_CASE("the writer lies down while a reader releases") {
  std::size_t slept = 0, saw = 0;
  at_every_instruction([&] {
    const auto two = full_ring(1);
    return Race{[two] { two->reader->release(two->slot); },
                [two] { two->slept = !two->writer->announce(); },
                [two, &slept, &saw] {
                  REQUIRE((!two->slept || rung(two->queue.bell(0))));
                  REQUIRE(two->writer->ready());
                  ++(two->slept ? slept : saw);
                }};
  });
  CHECK(slept > 0);
  CHECK(saw > 0);
}

TEST_CASE("a reader releases while the writer lies down") {
  at_every_instruction([&] {
    const auto two = full_ring(1);
    auto* const sleeps = reinterpret_cast<std::uint64_t*>(two->queue.bytes().data());
    return Race{[two, sleeps] { *sleeps = two->writer->announce() ? 1 : 2; },
                [two] { two->reader->release(two->slot); },
                [two, sleeps] {
                  REQUIRE(*sleeps != 0);
                  REQUIRE((*sleeps == 1 || rung(two->queue.bell(0))));
                }};
  });
}

TEST_CASE("two readers release at once: the one that makes the room rings the sleeping writer") {
  at_every_instruction([&] {
    const auto two = full_ring(2);
    REQUIRE_FALSE(two->writer->announce());
    return Race{[two] { two->reader->release(two->slot); },
                [two] { two->other->release(two->other_slot); },
                [two] {
                  REQUIRE(two->writer->ready());
                  REQUIRE(rung(two->queue.bell(0)));
                }};
  });
}

TEST_CASE("the writer needs more, and lies down again, while a reader makes what it needed before") {
  at_every_instruction([&] {
    const auto two = full_ring(1);
    REQUIRE_FALSE(two->writer->announce());
    Slot second;
    REQUIRE(two->reader->take(second) == Look::ready);
    return Race{[two] { two->reader->release(two->slot); },
                [two] {
                  // Cancelled, and asked anew for two slots' worth.
                  two->slept = two->writer->reserve(1'100) == Room::full && !two->writer->announce();
                },
                [two, second] {
                  REQUIRE(two->slept);
                  shm::doorbell::drain(two->queue.bell(0));  // a ring for what was needed before finds nothing
                  two->slept = !two->writer->announce();
                  REQUIRE(two->slept);
                  // The child's private state is lost with it: a successor goes on.
                  const auto successor = two->queue.reader();
                  Slot slot;
                  REQUIRE(successor->take(slot) == Look::ready);
                  CHECK(slot.sequence == second.sequence);
                  // It rings exactly if that makes the room that is needed now.
                  const bool rang = successor->release(slot);
                  REQUIRE(rang == two->writer->ready());
                }};
  });
}

TEST_CASE("a join is confirmed while the reader looks: it sees nothing yet or its first message, and no end") {
  std::size_t empty = 0, ready = 0;
  at_every_instruction([&] {
    const auto two = std::make_shared<Two>();
    two->queue.leave(0);
    two->reader = two->queue.reader();
    REQUIRE(rig::write(*two->writer, 8) == Room::ready);
    auto* const look = reinterpret_cast<std::uint64_t*>(two->queue.bytes().data());
    return Race{[two, look] { *look = 100 + static_cast<std::uint64_t>(two->reader->take(two->slot)); },
                [two] { two->writer->flush(); },
                [two, look, &empty, &ready] {
                  const auto found = static_cast<Look>(*look - 100);
                  REQUIRE((found == Look::empty || found == Look::ready));
                  ++(found == Look::empty ? empty : ready);
                  REQUIRE(rung(two->queue.bell(1)));  // the request itself was a park
                }};
  });
  CHECK(empty > 0);
  CHECK(ready > 0);
}

TEST_CASE("a reader asks to join and lies down while the writer publishes: confirmed and rung, or next time") {
  at_every_instruction([&] {
    const auto two = std::make_shared<Two>();
    two->queue.leave(0);
    REQUIRE(rig::write(*two->writer, 8) == Room::ready);
    return Race{[two] { two->writer->flush(); },
                [two] {
                  two->reader = two->queue.reader();
                  two->slept = !two->reader->announce();
                },
                [two] {
                  const bool confirmed = queue::standing(two->queue.segment(), 0) == queue::Standing::gates;
                  if (two->slept && confirmed) REQUIRE(rung(two->queue.bell(1)));
                  if (confirmed) {
                    REQUIRE(two->reader->take(two->slot) == Look::ready);
                    REQUIRE(two->slot.sequence == 0);
                  } else {
                    REQUIRE(two->reader->take(two->slot) == Look::empty);
                  }
                }};
  });
}

// Confirmed from before that publish, the rank once began behind what it had released already, and was overrun.
TEST_CASE("a rank takes, leaves and comes back within one publish: it begins no earlier than the writer believes") {
  std::size_t taken = 0, confirmed = 0;
  at_every_instruction([&] {
    const auto two = std::make_shared<Two>();
    two->reader = two->queue.reader();
    REQUIRE(rig::write(*two->writer, 8) == Room::ready);
    return Race{[two] { two->writer->flush(); },
                [two, &taken] {
                  if (two->reader->take(two->slot) == Look::ready) {
                    two->reader->release(two->slot);
                    ++taken;
                  }
                  two->queue.leave(0);
                  two->reader = two->queue.reader();
                },
                [two, &confirmed] {
                  shm::Segment& segment = two->queue.segment();
                  const std::uint64_t released = segment.reader(0).released.cursor.load();
                  const queue::Slowest believed = queue::slowest(segment);
                  const bool gates = queue::standing(segment, 0) == queue::Standing::gates;
                  if (two->reader->take(two->slot) == Look::ready) {
                    REQUIRE(gates);
                    REQUIRE(two->slot.begin >= believed.released);
                  } else if (gates) {
                    REQUIRE(two->reader->cursor() >= believed.released);
                  }
                  REQUIRE(segment.reader(0).released.cursor.load() >= released);
                  confirmed += gates ? 1 : 0;
                }};
  });
  CHECK(taken > 0);
  CHECK(confirmed > 0);
}

}  // namespace
