// The segment: its words and where they are not, and the ring that readers cannot write to.
#include "shm/segment.h"

#include <doctest/doctest.h>

#include <cstring>

#include "../forked.h"
#include "../rig.h"

namespace {

using namespace aiospin;

TEST_CASE("the ring wraps without a seam, for the writer and for readers") {
  rig::Rig queue;
  const std::uint64_t capacity = queue.segment().capacity();
  std::byte* const writing = queue.segment().ring_for_writing();
  const std::byte* const reading = queue.segment().ring_for_reading();
  CHECK(queue.segment().ring_for_writing() == writing);
  CHECK(queue.segment().ring_for_reading() == reading);
  for (std::uint64_t at = 0; at < capacity; at += 4093) {
    writing[at] = static_cast<std::byte>(at);
    REQUIRE(writing[capacity + at] == static_cast<std::byte>(at));
    REQUIRE(reading[at] == static_cast<std::byte>(at));
    REQUIRE(reading[capacity + at] == static_cast<std::byte>(at));
    writing[capacity + at] = static_cast<std::byte>(at + 1);
    REQUIRE(reading[at] == static_cast<std::byte>(at + 1));
  }
  // Through the file, too: the ring begins at ring_offset and is exactly as long as the capacity.
  writing[capacity - 1] = std::byte{0xa1};
  writing[0] = std::byte{0xb2};
  CHECK(queue.bytes().back() == std::byte{0xa1});
  CHECK(queue.bytes()[shm::ring_offset(1)] == std::byte{0xb2});
}

TEST_CASE("a write through the readers' ring ends the process, and changes nothing") {
  rig::Rig queue;
  queue.segment().ring_for_writing()[100] = std::byte{7};
  const std::byte* const ring = queue.segment().ring_for_reading();
  const std::uint64_t capacity = queue.segment().capacity();
  for (const std::uint64_t at : {std::uint64_t{100}, capacity + 100}) {
    CAPTURE(at);
    const int status = rig::forked([&] {
      *const_cast<volatile std::byte*>(ring + at) = std::byte{8};
      return 0;
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
    CHECK(ring[at] == std::byte{7});
  }
}

TEST_CASE("the readers' ring cannot be made writable") {
  rig::Rig queue;
  auto* const ring = const_cast<std::byte*>(queue.segment().ring_for_reading());
  CHECK(mprotect(ring, queue.segment().capacity(), PROT_READ | PROT_WRITE) == -1);
  CHECK(errno == EACCES);
}

TEST_CASE("a word is found by its offset in the file, inside the control area only") {
  for (const std::uint32_t readers : {0u, 1u, 5u}) {
    CAPTURE(readers);
    rig::Rig queue(readers);
    shm::Segment& segment = queue.segment();
    const std::uint64_t first = shm::control_offset(readers), end = shm::ring_offset(readers);
    CHECK(segment.word(first) == &segment.control().owner.shutdown);
    CHECK(segment.word(first + offsetof(shm::Control, published)) == &segment.control().published.cursor);
    for (std::uint32_t rank = 0; rank < readers; ++rank) {
      const std::uint64_t lines = first + sizeof(shm::Control) + rank * sizeof(shm::ReaderLines);
      CHECK(segment.word(lines) == &segment.reader(rank).released.cursor);
      CHECK(segment.word(shm::gates_offset(readers) + rank * sizeof(shm::Gate)) == &segment.gate(rank).gate);
    }
    CHECK(segment.word(end - 8) != nullptr);
    for (const std::uint64_t outside : {std::uint64_t{0}, first - 8, first + 1, first + 4, end - 4, end, end + 8,
                                        ~std::uint64_t{7}, ~std::uint64_t{0}}) {
      CHECK(segment.word(outside) == nullptr);
    }
    // One word, seen through another mapping of the same file.
    segment.word(first)->store(0x0123456789abcdef);
    std::uint64_t seen;
    std::memcpy(&seen, queue.bytes().data() + first, sizeof seen);
    CHECK(seen == 0x0123456789abcdef);
  }
}

}  // namespace
