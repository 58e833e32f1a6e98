// A writer that is killed in the first thing it does after it took over: the journal must still serve the one after it.
#include <doctest/doctest.h>

#include "../rig.h"
#include "../stepper.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

void publish(queue::Writer& writer) {
  REQUIRE(rig::write(writer, 40) == Room::ready);
  writer.flush();
}

TEST_CASE("killed at any store of a successor's first publish, after any number of its predecessor's") {
  for (int before = 0; before < 4; ++before) {
    CAPTURE(before);
    rig::Rig queue;
    {
      const auto predecessor = queue.writer();
      for (int i = 0; i < before; ++i) publish(*predecessor);
    }
    const auto successor = queue.writer();
    const auto old_cursor = successor->cursor(), old_sequence = successor->sequence();
    REQUIRE(rig::write(*successor, 40) == Room::ready);
    const std::size_t looks = rig::at_every_store(
        queue.control_bytes(), [&] { successor->flush(); },
        [&] {
          rig::Rig left = queue.copy();
          const auto next = left.writer();  // throws where no entry of the journal agrees
          const bool moved = next->cursor() == successor->cursor();
          REQUIRE((moved || next->cursor() == old_cursor));
          REQUIRE(next->sequence() == (moved ? successor->sequence() : old_sequence));
          publish(*next);
          const auto reader = left.reader();
          Slot slot;
          for (std::uint64_t sequence = 0; sequence < next->sequence(); ++sequence) {
            REQUIRE(reader->take(slot) == Look::ready);
            REQUIRE(slot.sequence == sequence);
            REQUIRE(rig::intact(slot));
            reader->release(slot);
          }
          REQUIRE(reader->take(slot) == Look::empty);
        });
    CHECK(looks >= 4);  // before, the journal, W
  }
}

}  // namespace
