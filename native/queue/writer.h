// The single writer, without waiting: reserve room, write a slot, commit it, flush.
//
// Guarantee: nothing is visible before flush(); a slot is overwritten only when every gating reader has released it.
// What was committed but not flushed, and what was reserved but not committed, vanish with the writer.
// Assumption: one thread at a time, and this process holds the writer's role.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "queue/gating.h"
#include "shm/segment.h"

namespace aiospin::queue {

enum class Room : std::uint8_t { ready, full, closed, corrupt };

class Writer {
 public:
  // Takes over where the journal says; `bells[r]` wakes reader r. Throws std::runtime_error when no journal entry fits.
  Writer(std::shared_ptr<shm::Segment> segment, std::vector<int> bells);

  // The largest payload of one slot; what is larger travels in fragments.
  std::uint64_t largest() const noexcept { return capacity_ - shm::kSlotHeader; }
  std::uint64_t fragment() const noexcept { return fragment_; }

  // Room for `payload` bytes (at most largest()) behind what is committed. Sets slot() when ready, else remembers what
  // is needed, for ready() and announce().
  Room reserve(std::uint64_t payload) noexcept;
  std::byte* slot() const noexcept { return ring_ + offset_ + shm::kSlotHeader; }
  // Where the next message goes was written so long ago that no cache has it. Measured with a shared one of 32 MiB, which
  // others use as well: a ring of 15 MiB is better written past it, one of 8 MiB, whose reader follows closely, is not.
  bool outgrows_cache() const noexcept { return outgrows_cache_; }

  // Completes the slot just reserved: `size` bytes that lie at `offset` of a message of `total` bytes. The message is
  // complete when offset + size == total.
  void commit(std::uint64_t total, std::uint64_t offset, std::uint64_t size, bool checksum) noexcept;
  // Publishes all that is committed, and rings whoever has parked. Returns the number of bells rung.
  unsigned flush() noexcept;

  // The queue was shut down: nothing more may be published.
  bool ended() const noexcept;
  // Would the last reserve() that failed get an answer now?
  bool ready() const noexcept;
  // Before sleeping on the writer's bell: asks the readers to ring, then looks again. True: do not sleep.
  bool announce() noexcept;
  // The released cursor of the reader that holds the writer up, for monitoring, and the value it has now.
  const Word& watched() const noexcept { return *watched_; }
  std::uint64_t watched_seen() const noexcept { return watched_seen_; }

  // Attach, takeover, close: treats every rank as after a publish. `drop` ends a rank's gating.
  unsigned ring_all() noexcept;
  void drop(std::uint32_t rank) noexcept;

  std::uint64_t cursor() const noexcept { return staged_; }
  std::uint64_t sequence() const noexcept { return sequence_; }
  const shm::Segment& segment() const noexcept { return *segment_; }
  const std::shared_ptr<shm::Segment>& shared_segment() const noexcept { return segment_; }

 private:
  void listen(std::uint32_t rank, std::uint64_t epoch, std::uint64_t before) noexcept;

  const std::shared_ptr<shm::Segment> segment_;
  const std::vector<int> bells_;
  std::byte* const ring_;
  const std::uint64_t capacity_;
  const bool outgrows_cache_;
  const std::uint64_t fragment_;
  const std::unique_ptr<std::uint64_t[]> rung_;  // per rank, the epoch last rung for; a successor starts at 0

  std::uint64_t published_ = 0;  // W as this process last stored it
  std::uint64_t staged_ = 0;     // published_ and what is committed behind it
  std::uint64_t offset_ = 0;     // staged_ modulo the capacity
  std::uint64_t limit_ = 0;      // no byte at or above it may be written yet; a lower bound of the truth
  std::uint64_t sequence_ = 0;   // number of the message being written
  unsigned turn_ = 0;            // which journal entry is written next
  std::uint64_t needed_ = 0;     // the released position that the last failed reserve() waits for
  const Word* watched_;
  std::uint64_t watched_seen_ = 0;
};

}  // namespace aiospin::queue
