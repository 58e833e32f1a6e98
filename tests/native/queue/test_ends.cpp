// What a reader must see in its order: a last message before the end, and where it starts before that it is confirmed.
#include <doctest/doctest.h>

#include "../race.h"
#include "../rig.h"

namespace {

using namespace aiospin;
using queue::Look;
using queue::Room;
using queue::Slot;

struct Pair {
  Pair() : queue(1, rig::kPageBytes), writer(queue.writer()) {}
  // In the segment's header, which is unused here and shared with the child.
  std::uint64_t& note() { return *reinterpret_cast<std::uint64_t*>(queue.bytes().data()); }
  rig::Rig queue;
  std::unique_ptr<queue::Writer> writer;
  std::unique_ptr<queue::Reader> reader;
};

TEST_CASE("the stream ends while a reader looks: it learns of the end only behind the last message") {
  std::size_t empty = 0, ready = 0;
  rig::at_every_instruction([&] {
    const auto pair = std::make_shared<Pair>();
    pair->reader = pair->queue.reader();
    REQUIRE(rig::write(*pair->writer, 8) == Room::ready);
    return rig::Race{[pair] {
                       Slot slot;
                       pair->note() = 100 + static_cast<std::uint64_t>(pair->reader->take(slot));
                     },
                     [pair] {
                       pair->writer->flush();
                       pair->queue.segment().control().writer.closed.store(1);
                     },
                     [pair, &empty, &ready] {
                       const auto look = static_cast<Look>(pair->note() - 100);
                       REQUIRE((look == Look::empty || look == Look::ready));
                       ++(look == Look::empty ? empty : ready);
                     }};
  });
  CHECK(empty > 0);
  CHECK(ready > 0);
}

TEST_CASE("a join is confirmed at any instruction of the writer: a reader that finds itself in begins where it is told") {
  std::size_t in = 0, outside = 0;
  rig::at_every_instruction([&] {
    const auto pair = std::make_shared<Pair>();
    pair->queue.leave(0);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(rig::write(*pair->writer, 1'000) == Room::ready);
      pair->writer->flush();
    }
    pair->reader = pair->queue.reader();
    REQUIRE(rig::write(*pair->writer, 8) == Room::ready);
    const std::uint64_t begins = pair->queue.segment().control().published.cursor.load();
    return rig::Race{[pair] { pair->writer->flush(); },
                     [pair, begins, &in, &outside] {
                       Slot slot;
                       const Look look = pair->reader->take(slot);
                       REQUIRE((look == Look::ready || look == Look::empty));
                       if (look == Look::ready) REQUIRE(slot.begin == begins);
                       ++(look == Look::ready ? in : outside);
                     },
                     [] {}};
  });
  CHECK(in > 0);
  CHECK(outside > 0);
}

TEST_CASE("a rank that is confirmed and has not looked yet gates from where it starts, and not from where it once was") {
  Pair pair;
  pair.queue.leave(0);
  const auto publish = [&] {
    REQUIRE(rig::write(*pair.writer, 1'000) == Room::ready);
    pair.writer->flush();
  };
  for (int i = 0; i < 20; ++i) publish();
  pair.reader = pair.queue.reader();
  const std::uint64_t begins = pair.writer->cursor();
  publish();
  CHECK(queue::slowest(pair.queue.segment()).released == begins);
  publish();
  Slot slot;
  REQUIRE(pair.reader->take(slot) == Look::ready);
  CHECK(slot.begin == begins);
}

}  // namespace
