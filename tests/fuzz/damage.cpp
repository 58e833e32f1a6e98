#include "damage.h"

#include <array>
#include <atomic>

namespace aiospin::fuzz {

namespace {

using shm::SlotHeader;

constexpr std::uint64_t kAll = ~std::uint64_t{0};

// Relaxed: damage keeps no order, and another thread may be reading.
void put(Word& word, std::uint64_t value) noexcept { word.store(value, std::memory_order_relaxed); }
std::uint64_t get(const Word& word) noexcept { return word.load(std::memory_order_relaxed); }
Word& word_at(std::byte* where) noexcept { return *reinterpret_cast<Word*>(where); }

// The words of owner and writer, the busiest ones first.
Word& writer_word(const Arena& arena, Choices& choose) noexcept {
  shm::Control& control = arena.segment().control();
  const std::array words{
      &control.published.cursor,          &control.owner.shutdown,
      &control.journal.entry[0].cursor,   &control.journal.entry[1].cursor,
      &control.journal.entry[0].sequence, &control.journal.entry[1].sequence,
      &control.room.needed,               &control.room.epoch,
      &control.writer.closed,             &control.writer.seat.state,
      &control.writer.seat.pid,           &control.writer.seat.start,
      &control.writer.seat.pid_namespace,
  };
  return *words[choose.below(words.size())];
}

// Any word of the control area.
Word& control_word(const Arena& arena, Choices& choose) noexcept {
  if (arena.readers() == 0 || choose.one_in(2)) return writer_word(arena, choose);
  const auto rank = static_cast<std::uint32_t>(choose.below(arena.readers()));
  shm::ReaderLines& lines = arena.segment().reader(rank);
  shm::Gate& gate = arena.segment().gate(rank);
  const std::array words{
      &lines.released.cursor, &lines.park.epoch,     &lines.park.stay,           &lines.seat.acquired,
      &lines.seat.seat.state, &lines.seat.seat.pid,  &lines.seat.seat.start,     &lines.seat.seat.pid_namespace,
      &gate.gate,             &gate.start,           &gate.rang_at,              &gate.reserved,
  };
  return *words[choose.below(words.size())];
}

// Where a slot is, or is to be read next, or could be.
std::byte* some_slot(const Arena& arena, Choices& choose) noexcept {
  const std::uint64_t capacity = arena.capacity();
  std::uint64_t at = 0;
  if (arena.readers() != 0 && !choose.one_in(4)) {
    const auto rank = static_cast<std::uint32_t>(choose.below(arena.readers()));
    shm::ReaderLines& lines = arena.segment().reader(rank);
    at = get(choose.one_in(2) ? lines.released.cursor : lines.seat.acquired);
    // A few slots further, as their headers say.
    for (std::uint64_t hops = choose.below(4); hops > 0; --hops) {
      const auto* header = reinterpret_cast<const SlotHeader*>(arena.ring() + at % capacity / 64 * 64);
      at += shm::stride(std::atomic_ref<std::uint64_t>(const_cast<SlotHeader*>(header)->size).load(std::memory_order_relaxed) % capacity);
    }
  } else {
    at = choose.below(capacity);
  }
  return arena.ring() + at % capacity / 64 * 64;
}

// One 8-byte field of a slot header: sequence, total, offset, size, flags and checksum.
void slot_field(const Arena& arena, Choices& choose) noexcept {
  std::byte* const slot = some_slot(arena, choose);
  Word& field = word_at(slot + 8 * choose.below(5));
  put(field, nasty(choose, get(field), arena.capacity()));
}

// Size and total, or offset and total, changed to fit each other: past the first checks.
void slot_in_agreement(const Arena& arena, Choices& choose) noexcept {
  std::byte* const slot = some_slot(arena, choose);
  Word &total = word_at(slot + 8), &offset = word_at(slot + 16), &size = word_at(slot + 24);
  const std::uint64_t value = nasty(choose, get(size), arena.capacity());
  switch (choose.below(4)) {
    case 0:
      put(size, value);
      put(total, value);
      break;
    case 1:
      put(offset, value);
      put(total, value + get(size));
      break;
    case 2:
      put(total, nasty(choose, get(total), arena.capacity()));
      put(offset, get(total) - get(size));
      break;
    default:
      put(size, value);
      put(total, kAll >> choose.below(64));
      break;
  }
}

// Every cursor to one place, as if that many bytes had passed: at the ends of the range if need be.
void move_the_stream(const Arena& arena, Choices& choose) noexcept {
  shm::Control& control = arena.segment().control();
  const std::uint64_t old = get(control.published.cursor);
  std::uint64_t to = nasty(choose, old, arena.capacity());
  if (!choose.one_in(4)) to = to / 64 * 64;
  put(control.published.cursor, to);
  put(control.journal.entry[choose.below(2)].cursor, to);
  if (choose.one_in(2)) put(control.journal.entry[choose.below(2)].sequence, nasty(choose, 0, arena.capacity()));
  for (std::uint32_t rank = 0; rank < arena.readers(); ++rank) {
    const std::uint64_t behind = choose.one_in(2) ? 0 : 64 * choose.below(arena.capacity() / 32);
    put(choose.one_in(2) ? arena.segment().reader(rank).released.cursor : arena.segment().gate(rank).start, to - behind);
  }
}

// A rank's standing: gate and stay as they would be after joins, leaves and drops.
void change_standing(const Arena& arena, Choices& choose) noexcept {
  if (arena.readers() == 0) return;
  const auto rank = static_cast<std::uint32_t>(choose.below(arena.readers()));
  const std::uint64_t stay = nasty(choose, get(arena.segment().reader(rank).park.stay), arena.capacity());
  put(arena.segment().reader(rank).park.stay, stay);
  if (!choose.one_in(3)) put(arena.segment().gate(rank).gate, choose.one_in(2) ? stay : stay | 1);
}

// Bytes anywhere, aligned to nothing.
void scribble(std::span<std::byte> bytes, Choices& choose) noexcept {
  const std::uint64_t begin = choose.below(bytes.size());
  const std::uint64_t length = 1 + choose.below(24);
  for (std::uint64_t at = begin; at < begin + length && at < bytes.size(); ++at) {
    const std::atomic_ref<std::byte> byte(bytes[at]);
    byte.store(static_cast<std::byte>(choose.below(256)), std::memory_order_relaxed);
  }
}

}  // namespace

std::uint64_t nasty(Choices& choose, std::uint64_t old, std::uint64_t capacity) noexcept {
  switch (choose.below(14)) {
    case 0: return 0;
    case 1: return old + 1;
    case 2: return old - 1;
    case 3: return old + 64;
    case 4: return old - 64;
    case 5: return capacity + 64 * choose.below(4) - 128;
    case 6: return old + capacity + 64 * choose.below(3) - 64;
    case 7: return old - capacity;
    case 8: return (std::uint64_t{1} << 63) + 64 * choose.below(4) - 128;
    case 9: return kAll - choose.below(3);
    case 10: return 0 - 64 * choose.below(64);
    case 11: return old ^ (std::uint64_t{1} << choose.below(64));
    case 12: return choose.below(2 * capacity);
    default: return choose.any();
  }
}

void damage(const Arena& arena, Choices& choose) noexcept {
  switch (choose.below(16)) {
    case 0: case 1: case 2: case 3: {
      Word& word = control_word(arena, choose);
      return put(word, nasty(choose, get(word), arena.capacity()));
    }
    case 4: case 5: case 6: case 7:
      return slot_field(arena, choose);
    case 8: case 9:
      return slot_in_agreement(arena, choose);
    case 10: case 11:
      return move_the_stream(arena, choose);
    case 12:
      return change_standing(arena, choose);
    case 13:  // one word over another; not a rank's, since `rang_at` is a time and differs from run to run
      return put(control_word(arena, choose), get(writer_word(arena, choose)));
    case 14:
      return scribble(arena.control_bytes(), choose);
    default:
      return scribble({arena.ring(), arena.capacity()}, choose);
  }
}

}  // namespace aiospin::fuzz
