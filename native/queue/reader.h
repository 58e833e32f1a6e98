// One reader, without waiting: take the next slot, give it back, release it.
//
// Guarantee: a slot handed out stays as it is until release(); slots may be released in any order, and the released
// cursor moves past the oldest run. Nothing read from shared memory is used as a length or an offset unchecked.
// Assumption: one thread at a time, and this process holds the role of this rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "queue/gating.h"
#include "queue/window.h"
#include "shm/segment.h"

namespace aiospin::queue {

enum class Look : std::uint8_t { ready, empty, closed, dropped, corrupt, lost, no_memory };

struct Slot {
  const std::byte* bytes;
  std::uint64_t size;
  std::uint64_t sequence;
  std::uint64_t begin;  // position of the slot; of the last fragment where the bytes are private
  std::byte* owned;     // private bytes of a message that came in fragments, freed by release(); else null
  bool redelivered;     // a predecessor may have seen it
};

class Reader {
 public:
  Reader(std::shared_ptr<shm::Segment> segment, std::uint32_t rank, int writer_bell, bool checksum);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Hands out the oldest slot that nobody holds. `lost` is told once and consumes nothing more.
  Look take(Slot& slot) noexcept;
  // Takes a slot back untouched: the next take() returns it.
  void give_back(const Slot& slot);
  // The bytes go back to the ring. Returns true when that rang the writer.
  bool release(const Slot& slot) noexcept;
  // As take() then release(), but the released cursor stays until settle(): for copying many at once.
  void consume(const Slot& slot) noexcept;
  bool settle() noexcept;

  // Would take() return something other than `empty`? While the waiter thread may call it, nobody takes.
  bool ready() const noexcept;
  // Before sleeping on this reader's bell: asks the writer to ring, then looks again. True: do not sleep.
  bool announce() noexcept;
  const Word& watched() const noexcept { return segment_->control().published.cursor; }
  std::uint64_t watched_seen() const noexcept { return next_; }

  std::uint64_t cursor() const noexcept { return next_; }
  // Number of the message that comes next; unknown before the first one.
  std::optional<std::uint64_t> expected() const noexcept { return numbered_ ? std::optional(expected_) : std::nullopt; }
  std::uint64_t held() const noexcept { return window_.size(); }
  // CLOCK_MONOTONIC nanoseconds of the last ring for this rank, 0 for none.
  std::uint64_t rang_at() const noexcept;
  std::uint32_t rank() const noexcept { return rank_; }
  const shm::Segment& segment() const noexcept { return *segment_; }

 private:
  bool ended() const noexcept;
  Look refresh() noexcept;
  Look take_fragment(const shm::SlotHeader& header, Slot& slot) noexcept;
  Look corrupt() const noexcept;
  void step(std::uint64_t length) noexcept;
  void number(std::uint64_t next_message) noexcept;
  void forget_partial() noexcept;

  const std::shared_ptr<shm::Segment> segment_;
  const std::uint32_t rank_;
  const int writer_bell_;
  const bool checksum_;
  const std::byte* const ring_;
  const std::uint64_t capacity_;
  shm::ReaderLines& lines_;

  std::uint64_t next_ = 0;      // position of the next slot
  std::uint64_t offset_ = 0;    // next_ modulo the capacity
  std::uint64_t published_ = 0; // W when last looked at
  std::uint64_t released_ = 0;  // R as this process last stored it
  std::uint64_t acquired_ = 0;  // end of the furthest slot ever handed out
  std::uint64_t expected_ = 0;  // number of the next message, once known
  bool numbered_ = false;
  bool joining_ = false;        // waiting for the writer to confirm
  bool late_ = false;           // the rest of a message whose beginning is gone is skipped
  std::uint64_t redelivered_below_ = 0;
  std::uint64_t rung_ = 0;      // the writer's epoch last rung for

  Window window_;               // what lies between released_ and next_
  std::vector<Slot> returned_;  // given back, oldest last
  std::atomic<bool> has_returned_{false};  // for ready(), which the waiter thread may call

  std::byte* partial_ = nullptr;  // a message arriving in fragments
  std::uint64_t partial_total_ = 0, partial_done_ = 0;
};

}  // namespace aiospin::queue
