#include "queue/writer.h"

#include <cstring>
#include <stdexcept>

#include "platform/clock.h"
#include "platform/copy.h"
#include "platform/membarrier.h"
#include "platform/probe.h"
#include "shm/checksum.h"
#include "shm/doorbell.h"

namespace aiospin::queue {

using shm::SlotHeader;

Writer::Writer(std::shared_ptr<shm::Segment> segment, std::vector<int> bells)
    : segment_(std::move(segment)),
      bells_(std::move(bells)),
      ring_(segment_->ring_for_writing()),
      capacity_(segment_->capacity()),
      outgrows_cache_(capacity_ > shared_cache() / 3),
      fragment_(capacity_ / 4 - shm::kSlotHeader),
      rung_(new std::uint64_t[segment_->readers()]()),
      watched_(&segment_->control().published.cursor) {
  const shm::Control& control = segment_->control();
  published_ = shm::cursor::observe(control.published.cursor);
  for (unsigned entry = 0;; ++entry) {
    // An entry that was voided when its writer died names no cursor, whatever W was scribbled to. And no stream is long
    // enough to let the arithmetic on cursors wrap: full and ready() would contradict each other there.
    if (entry == 2 || published_ % shm::kSlotAlign != 0 || published_ >= shm::kFarthest) {
      throw std::runtime_error("no journal entry agrees with the published cursor");
    }
    const shm::JournalEntry& journal = control.journal.entry[entry];
    // sync:journal acquire: the sequence that the cursor vouches for is visible after it.
    if (journal.cursor.load(std::memory_order_acquire) != published_) continue;
    // relaxed: ordered by the acquire above.
    sequence_ = journal.sequence.load(std::memory_order_relaxed);
    if (sequence_ >= shm::kFarthest) continue;
    turn_ = 1 - entry;
    break;
  }
  staged_ = published_;
  offset_ = staged_ % capacity_;
}

bool Writer::ended() const noexcept {
  // sync:shutdown acquire: what the owner or this writer did before ending the queue.
  return segment_->control().owner.shutdown.load(std::memory_order_acquire) != 0;
}

Room Writer::reserve(std::uint64_t payload) noexcept {
  if (ended()) return Room::closed;
  const std::uint64_t end = staged_ + shm::stride(payload);
  if (end <= limit_) [[likely]] {
    AIOSPIN_PROBE(claim);
    return Room::ready;
  }
  const Slowest found = slowest(*segment_);
  if (!found.gated) {
    // Nobody reads, so there is nothing to keep, and the next reserve() looks again for joiners. But no more is staged
    // than the ring holds: a reader that joins with the next flush() starts at the published cursor of before it.
    if (end - published_ > capacity_) {
      flush();
      return reserve(payload);  // who joined just now gates already; and with nothing staged it fits
    }
    limit_ = end;
    AIOSPIN_PROBE(claim);
    return Room::ready;
  }
  if (found.released > published_ || published_ - found.released > capacity_) return Room::corrupt;
  limit_ = found.released + capacity_;
  if (end <= limit_) {
    AIOSPIN_PROBE(claim);
    return Room::ready;
  }
  needed_ = end - capacity_;
  watched_ = &segment_->reader(found.rank).released.cursor;
  // relaxed: a starting point for monitoring; ready() decides.
  watched_seen_ = watched_->load(std::memory_order_relaxed);
  return Room::full;
}

void Writer::commit(std::uint64_t total, std::uint64_t offset, std::uint64_t size, bool checksum) noexcept {
  auto* header = reinterpret_cast<SlotHeader*>(ring_ + offset_);
  header->sequence = sequence_;
  header->total = total;
  header->offset = offset;
  header->size = size;
  header->flags = checksum ? std::uint32_t{shm::kHasChecksum} : 0;
  header->checksum = checksum ? shm::crc32c({slot(), size}) : 0;
  const std::uint64_t length = shm::stride(size);
  staged_ += length;
  offset_ += length;
  if (offset_ >= capacity_) offset_ -= capacity_;
  if (offset + size == total) ++sequence_;
}

unsigned Writer::flush() noexcept {
  if (staged_ == published_) return 0;
  shm::Control& control = segment_->control();
  shm::JournalEntry& journal = control.journal.entry[turn_];
  AIOSPIN_PROBE(journal);
  // A crash between the two stores leaves an entry that may agree with neither W; the other one still agrees with it,
  // since W has not moved.
  // relaxed: ordered before W by its exchange. The cursor is voided first so that no mixture of old and new can agree.
  journal.cursor.store(kNobody, std::memory_order_relaxed);
  AIOSPIN_PROBE(journal_voided);
  // sync:journal release: the void is visible before the new sequence.
  journal.sequence.store(sequence_, std::memory_order_release);
  // sync:journal release: the sequence is visible before the cursor that vouches for it.
  journal.cursor.store(staged_, std::memory_order_release);
  AIOSPIN_PROBE(publish);
  turn_ = 1 - turn_;
  const std::uint64_t before = published_;
  published_ = staged_;
  shm::cursor::advance(control.published.cursor, published_);
  AIOSPIN_PROBE(published);
  unsigned rings = 0;
  for (std::uint32_t rank = 0; rank < segment_->readers(); ++rank) {
    const std::uint64_t epoch = shm::doorbell::heard(segment_->reader(rank).park.epoch);
    if (epoch != rung_[rank]) [[unlikely]] {
      listen(rank, epoch, before);
      ++rings;
    }
  }
  return rings;
}

void Writer::listen(std::uint32_t rank, std::uint64_t epoch, std::uint64_t before) noexcept {
  shm::Gate& gate = segment_->gate(rank);
  if (standing(*segment_, rank) == Standing::joining) {
    // sync:stay seq_cst: the request that is being confirmed.
    const std::uint64_t stay = segment_->reader(rank).park.stay.load(std::memory_order_seq_cst);
    // relaxed: published by the gate word that follows.
    gate.start.store(before, std::memory_order_relaxed);
    AIOSPIN_PROBE(confirm);
    // sync:gate seq_cst: from here on the rank gates this writer, and the reader may begin at `start`.
    gate.gate.store(stay, std::memory_order_seq_cst);
    limit_ = 0;  // the limit was computed without this rank
  }
  // relaxed: a hint for the reader's policy, read after the bell.
  gate.rang_at.store(monotonic_ns(), std::memory_order_relaxed);
  AIOSPIN_PROBE(ring);
  shm::doorbell::ring(bells_[rank]);
  AIOSPIN_PROBE(rang);
  rung_[rank] = epoch;  // after ringing: cut short in between, it rings once too often and not once too seldom
}

unsigned Writer::ring_all() noexcept {
  for (std::uint32_t rank = 0; rank < segment_->readers(); ++rank) {
    listen(rank, shm::doorbell::heard(segment_->reader(rank).park.epoch), published_);
  }
  return segment_->readers();
}

void Writer::drop(std::uint32_t rank) noexcept {
  // sync:stay seq_cst: the stay that is being ended.
  const std::uint64_t stay = segment_->reader(rank).park.stay.load(std::memory_order_seq_cst);
  AIOSPIN_PROBE(drop);
  // sync:gate seq_cst: the reader finds itself dropped at its next look; slots it holds may be overwritten from now on.
  segment_->gate(rank).gate.store(stay | 1, std::memory_order_seq_cst);
  limit_ = 0;
  shm::doorbell::ring(bells_[rank]);
}

bool Writer::ready() const noexcept {
  if (ended()) return true;
  const std::uint64_t released = slowest(*segment_).released;
  // Not only room: whatever reserve() would not answer with `full`.
  return released >= needed_ || released > published_ || published_ - released > capacity_;
}

bool Writer::announce() noexcept {
  shm::RoomLine& room = segment_->control().room;
  // relaxed: published by the epoch that follows; a reader reads the epoch first.
  room.needed.store(needed_, std::memory_order_relaxed);
  AIOSPIN_PROBE(room_park);
  shm::doorbell::announce(room.epoch);
  AIOSPIN_PROBE(room_parked);
  if (has_light(*segment_)) membarrier::everywhere();
  return ready();
}

}  // namespace aiospin::queue
