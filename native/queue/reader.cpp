#include "queue/reader.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "platform/fence.h"
#include "platform/membarrier.h"
#include "platform/probe.h"
#include "shm/checksum.h"
#include "shm/doorbell.h"

namespace aiospin::queue {

using shm::SlotHeader;

Reader::Reader(std::shared_ptr<shm::Segment> segment, std::uint32_t rank, int writer_bell, bool checksum)
    : segment_(std::move(segment)),
      rank_(rank),
      writer_bell_(writer_bell),
      checksum_(checksum),
      ring_(segment_->ring_for_reading()),
      capacity_(segment_->capacity()),
      lines_(segment_->reader(rank)) {
  const shm::Gate& gate = segment_->gate(rank_);
  if (standing(*segment_, rank_) == Standing::gates) {
    // A first reader, or the successor of one that detached or died: the place was kept.
    const std::uint64_t cursor = shm::cursor::observe(lines_.released.cursor);
    // relaxed: ordered by the acquire of the gate word in standing().
    const std::uint64_t start = gate.start.load(std::memory_order_relaxed);
    next_ = released_ = cursor > start ? cursor : start;
    // relaxed: written by a process that no longer holds the role, and the lock orders us behind it.
    redelivered_below_ = acquired_ = lines_.seat.acquired.load(std::memory_order_relaxed);
  } else {
    joining_ = late_ = true;
    // relaxed: only this role writes it.
    const std::uint64_t stay = lines_.park.stay.load(std::memory_order_relaxed);
    // An odd stay (left) and a dropped even one both need a new even one; a request still pending stands as it is.
    const std::uint64_t wanted = standing(*segment_, rank_) == Standing::joining ? stay : (stay | 1) + 1;
    // sync:stay seq_cst: the request, ordered before the epoch that makes the writer look at it.
    lines_.park.stay.store(wanted, std::memory_order_seq_cst);
    shm::doorbell::announce(lines_.park.epoch);
  }
  published_ = next_;
  offset_ = next_ % capacity_;
}

Reader::~Reader() {
  forget_partial();
  for (const Slot& slot : returned_) std::free(slot.owned);
}

bool Reader::ended() const noexcept {
  const shm::Control& control = segment_->control();
  // sync:shutdown seq_cst: pairs with the end of the stream, and is part of a sleeper's second look.
  return control.owner.shutdown.load(std::memory_order_seq_cst) != 0 ||
         control.writer.closed.load(std::memory_order_seq_cst) != 0;
}

Look Reader::refresh() noexcept {
  switch (standing(*segment_, rank_)) {
    case Standing::gates:
      break;
    case Standing::joining:
      return ended() ? Look::closed : Look::empty;  // once it has ended nobody confirms any more
    case Standing::left:
    case Standing::dropped:
      return Look::dropped;
  }
  const shm::Control& control = segment_->control();
  if (joining_) {
    // relaxed: ordered by the acquire of the gate word in standing().
    const std::uint64_t start = segment_->gate(rank_).start.load(std::memory_order_relaxed);
    // An earlier stay may have read on while the writer was confirming this one; no cursor ever moves backwards.
    const std::uint64_t cursor = shm::cursor::observe(lines_.released.cursor);
    next_ = published_ = released_ = cursor > start ? cursor : start;
    offset_ = next_ % capacity_;
    joining_ = false;
    shm::cursor::advance(lines_.released.cursor, released_);
  }
  const bool over = ended();  // read before W: whatever was published before the end is then seen, and drained
  published_ = shm::cursor::observe(control.published.cursor);
  if (published_ < next_ || published_ - next_ > capacity_ || published_ % shm::kSlotAlign != 0) {
    published_ = next_;
    return corrupt();
  }
  if (published_ != next_) return Look::ready;
  return over ? Look::closed : Look::empty;
}

// A reader that was dropped may have been overrun: what looks damaged is then no damage.
Look Reader::corrupt() const noexcept {
  order_loads();  // the gate must not be older than the bytes that were found damaged
  return standing(*segment_, rank_) == Standing::dropped ? Look::dropped : Look::corrupt;
}

Look Reader::take(Slot& slot) noexcept {
  // sync:shutdown acquire: an immediate shutdown ends even what is already readable.
  if (segment_->control().owner.shutdown.load(std::memory_order_acquire) == 2) [[unlikely]]
    return Look::closed;
  if (!returned_.empty()) [[unlikely]] {
    slot = returned_.back();
    returned_.pop_back();
    // relaxed: a hint, as below.
    has_returned_.store(!returned_.empty(), std::memory_order_relaxed);
    return Look::ready;
  }
  for (;;) {
    if (next_ == published_) {
      if (const Look look = refresh(); look != Look::ready) return look;
      // sync:gate acquire: a live reader may be dropped while slots are cached here.
    } else if (segment_->gate(rank_).gate.load(std::memory_order_acquire) % 2 != 0) [[unlikely]] {
      return Look::dropped;
    }
    const std::byte* const at = ring_ + offset_;
    SlotHeader header;
    std::memcpy(&header, at, sizeof header);
    const std::uint64_t room = published_ - next_;
    if (header.size > room || shm::stride(header.size) > room || header.total > shm::kLargestMessage ||
        header.offset > header.total || header.size > header.total - header.offset ||
        (numbered_ && header.sequence != expected_)) [[unlikely]] {
      return corrupt();
    }
    if (checksum_ && shm::crc32c({at + shm::kSlotHeader, header.size}) != header.checksum) [[unlikely]]
      return corrupt();
    if (header.size != header.total) [[unlikely]] {
      const Look look = take_fragment(header, slot);
      if (look == Look::empty) continue;  // more of the message may be there already
      return look;
    }
    if (partial_ != nullptr) [[unlikely]]
      forget_partial();  // its writer gave it up or died
    window_.open(next_);
    slot = {at + shm::kSlotHeader, header.size, header.sequence, next_, nullptr, next_ < redelivered_below_};
    step(shm::stride(header.size));
    number(header.sequence + 1);
    AIOSPIN_PROBE(take);
    return Look::ready;
  }
}

void Reader::step(std::uint64_t length) noexcept {
  next_ += length;
  offset_ += length;
  if (offset_ >= capacity_) offset_ -= capacity_;
  if (next_ > acquired_) {
    acquired_ = next_;
    // relaxed: read by a successor after this process is gone.
    lines_.seat.acquired.store(next_, std::memory_order_relaxed);
  }
}

void Reader::number(std::uint64_t next_message) noexcept {
  expected_ = next_message;
  numbered_ = true;
  late_ = false;
}

// Copies one fragment. All but the last give their bytes back at once, since the message is larger than the ring; the
// last is held with the message, so that a successor of this reader learns that there was one. `empty`: go on with the
// next slot.
Look Reader::take_fragment(const SlotHeader& header, Slot& slot) noexcept {
  const bool ends = header.offset + header.size == header.total;
  if (header.offset == 0) {
    forget_partial();
    partial_ = static_cast<std::byte*>(std::malloc(header.total));
    if (partial_ == nullptr) return Look::no_memory;  // nothing is consumed: for another try
    partial_total_ = header.total;
    number(header.sequence);
  } else if (partial_ == nullptr) {
    // The beginning is gone: it was published before this reader joined, or released by a predecessor that died.
    if (numbered_ && !late_) return corrupt();
    const bool told = late_;
    late_ = true;
    step(shm::stride(header.size));
    if (ends) number(header.sequence + 1);
    settle();
    return told ? Look::empty : Look::lost;
  } else if (header.offset != partial_done_ || header.total != partial_total_) {
    return corrupt();
  }
  std::memcpy(partial_ + header.offset, ring_ + offset_ + shm::kSlotHeader, header.size);
  partial_done_ = header.offset + header.size;
  if (ends) {
    window_.open(next_);
    slot = {partial_, partial_total_, header.sequence, next_, partial_, next_ < redelivered_below_};
    partial_ = nullptr;
    number(header.sequence + 1);
  }
  step(shm::stride(header.size));
  AIOSPIN_PROBE(fragment);
  settle();
  return ends ? Look::ready : Look::empty;
}

void Reader::forget_partial() noexcept {
  std::free(partial_);
  partial_ = nullptr;
}

void Reader::give_back(const Slot& slot) {
  const auto place = std::lower_bound(returned_.begin(), returned_.end(), slot,
                                      [](const Slot& a, const Slot& b) { return a.begin > b.begin; });
  returned_.insert(place, slot);
  // relaxed: a hint; take() runs in the thread that gave back, or behind a lock.
  has_returned_.store(true, std::memory_order_relaxed);
}

bool Reader::release(const Slot& slot) noexcept {
  consume(slot);
  return settle();
}

void Reader::consume(const Slot& slot) noexcept {
  std::free(slot.owned);
  window_.close(slot.begin);
}

bool Reader::settle() noexcept {
  const std::uint64_t released = window_.empty() ? next_ : window_.front();
  if (released == released_) return false;
  released_ = released;
  AIOSPIN_PROBE(release);
  shm::cursor::advance(lines_.released.cursor, released);
  AIOSPIN_PROBE(released);
  const shm::RoomLine& room = segment_->control().room;
  const std::uint64_t epoch = shm::doorbell::heard(room.epoch);
  if (epoch == rung_) [[likely]]
    return false;
  // relaxed: stored before the epoch that was just read.
  const std::uint64_t needed = room.needed.load(std::memory_order_relaxed);
  // Not yet: leave the epoch unmarked, and the reader that crosses the line last rings.
  if (slowest(*segment_).released < needed) return false;
  AIOSPIN_PROBE(room_ring);
  shm::doorbell::ring(writer_bell_);
  AIOSPIN_PROBE(room_rang);
  rung_ = epoch;
  return true;
}

bool Reader::ready() const noexcept {
  // relaxed: a hint, see give_back().
  if (has_returned_.load(std::memory_order_relaxed)) return true;
  if (ended()) return true;
  switch (standing(*segment_, rank_)) {
    case Standing::joining:
      return false;
    case Standing::left:
    case Standing::dropped:
      return true;
    case Standing::gates:
      break;
  }
  // A join just confirmed counts as ready: take() then learns where it starts.
  return joining_ || shm::cursor::look_again(segment_->control().published.cursor) != next_;
}

bool Reader::announce() noexcept {
  AIOSPIN_PROBE(park);
  shm::doorbell::announce(lines_.park.epoch);
  AIOSPIN_PROBE(parked);
  // relaxed: set once, when the role was claimed, and the claim rang.
  if ((segment_->control().writer.seat.state.load(std::memory_order_relaxed) & shm::kLight) != 0) {
    membarrier::everywhere();
  }
  return ready();
}

std::uint64_t Reader::rang_at() const noexcept {
  // relaxed: a number for the policy.
  return segment_->gate(rank_).rang_at.load(std::memory_order_relaxed);
}

}  // namespace aiospin::queue
