#include "execution.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "damage.h"
#include "platform/clock.h"
#include "wait/ladder.h"
#include "wait/word_watch.h"

namespace aiospin::fuzz {

namespace {

using queue::Look;
using queue::Room;
using queue::Slot;

void must(bool holds, const char* what) noexcept {
  if (holds) return;
  std::fprintf(stderr, "fuzz: it does not hold that %s\n", what);
  std::abort();
}

// Touches first, last and some bytes in between: each page of a mapping, both ends of an allocation.
void read_through(const std::byte* bytes, std::uint64_t size) noexcept {
  if (size == 0) return;
  volatile std::byte sink = bytes[size - 1];
  for (std::uint64_t at = 0; at < size; at += 512) sink = bytes[at];
  static_cast<void>(sink);
}

struct Rank {
  std::unique_ptr<queue::Reader> reader;
  std::vector<Slot> held;
  std::uint64_t returned = 0;  // given back, and not yet handed out again
};

class Execution {
 public:
  Execution(Arena& arena, Choices& choose, bool raced, Tally& tally)
      : arena_(arena), choose_(choose), raced_(raced), tally_(tally), ranks_(arena.readers()) {
    checksum_ = choose_.one_in(4);
    take_over();
    for (std::uint32_t rank = 0; rank < arena_.readers(); ++rank) succeed(rank);
  }
  ~Execution() {
    for (Rank& rank : ranks_) abandon(rank);
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void run() {
    // Some messages first, so that there is something to damage.
    for (std::uint64_t count = choose_.below(12); count > 0; --count) write();
    for (std::uint64_t steps = 4 + choose_.below(20); steps > 0 && !choose_.exhausted(); --steps) step();
    end();
  }

 private:
  void step() {
    switch (choose_.below(24)) {
      case 0: case 1: case 2: case 3: case 4: case 5:
        ++tally_.damages;
        return damage(arena_, choose_);
      case 6: case 7: case 8:
        return write();
      case 9:
        return write_fragment();
      case 10:
        return sleep_as_writer();
      case 11:
        if (writer_) writer_->ring_all();
        return;
      case 12:
        if (writer_ && arena_.readers() != 0) writer_->drop(static_cast<std::uint32_t>(choose_.below(arena_.readers())));
        return;
      case 13:
        return take_over();
      case 14:
        return watch_a_word();
      default:
        if (arena_.readers() != 0) read(static_cast<std::uint32_t>(choose_.below(arena_.readers())));
    }
  }

  // --- the writer

  void take_over() {
    ++tally_.takeovers;
    try {
      writer_ = arena_.rig().writer();
    } catch (const std::runtime_error&) {
      ++tally_.refused;
      writer_.reset();
    }
  }

  Room reserve(std::uint64_t size) {
    const Room room = writer_->reserve(size);
    must(room <= Room::corrupt, "reserve() gives a legal answer");
    ++tally_.rooms[static_cast<std::size_t>(room)];
    if (room == Room::ready) {
      std::byte* const slot = writer_->slot();
      must(slot >= arena_.ring() + shm::kSlotHeader && slot + size <= arena_.ring() + 2 * arena_.capacity(),
           "what reserve() hands out lies in the ring");
      if (size != 0) slot[0] = slot[size - 1] = std::byte{0x5a};
    }
    if (room == Room::full && !raced_) must(!writer_->ready(), "a writer without room is not ready");
    return room;
  }

  void write() {
    if (!writer_) return;
    const std::uint64_t size = choose_.below(choose_.one_in(4) ? writer_->largest() + 1 : 700);
    if (reserve(size) == Room::ready) {
      writer_->commit(size, 0, size, checksum_);
    } else if (choose_.one_in(2)) {
      return sleep_as_writer();
    }
    if (!choose_.one_in(4)) writer_->flush();
  }

  void write_fragment() {
    if (!writer_) return;
    const std::uint64_t size = 1 + choose_.below(writer_->fragment());
    const std::uint64_t parts = 2 + choose_.below(3), first = choose_.below(2);
    for (std::uint64_t part = first; part < parts; ++part) {
      if (reserve(size) != Room::ready) break;
      writer_->commit(parts * size, part * size, size, checksum_);
      if (!choose_.one_in(3)) writer_->flush();
    }
    writer_->flush();
  }

  void sleep_as_writer() {
    if (!writer_) return;
    wait::EndpointWatch watch(*writer_);
    nap(watch, 0);
    must(writer_->watched_seen() == writer_->watched_seen(), "what a writer watches can be read");
    if (choose_.one_in(2)) static_cast<void>(reserve(choose_.below(writer_->largest() + 1)));
  }

  // --- the readers

  void succeed(std::uint32_t rank) {
    abandon(ranks_[rank]);
    ranks_[rank].reader = arena_.rig().reader(rank, checksum_);
  }

  // As a process that ends: what it held is gone with it.
  static void abandon(Rank& rank) noexcept {
    for (const Slot& slot : rank.held) std::free(slot.owned);
    rank.held.clear();
    rank.returned = 0;
    rank.reader.reset();
  }

  Look take(std::uint32_t number) {
    Rank& rank = ranks_[number];
    Slot slot{};
    const Look look = rank.reader->take(slot);
    must(look <= Look::no_memory, "take() gives a legal answer");
    ++tally_.looks[static_cast<std::size_t>(look)];
    if (look == Look::empty && !raced_) must(!rank.reader->ready(), "a reader without a message is not ready");
    if (rank.returned != 0) {
      must(look == Look::ready || look == Look::closed, "a slot that came back is handed out again");
      rank.returned -= look == Look::ready ? 1 : 0;
    }
    if (look != Look::ready) return look;
    if (slot.owned == nullptr) {
      must(slot.bytes >= arena_.reading() + shm::kSlotHeader && slot.size <= arena_.capacity() - shm::kSlotHeader &&
               slot.bytes + slot.size <= arena_.reading() + 2 * arena_.capacity(),
           "a slot lies in the ring");
    } else {
      must(slot.bytes == slot.owned && slot.size <= shm::kLargestMessage, "a message in fragments is private");
    }
    read_through(slot.bytes, slot.size);
    rank.held.push_back(slot);
    must(rank.reader->held() == rank.held.size() + rank.returned, "a reader knows what it has lent out");
    return look;
  }

  // Lets go of one slot that is held, in one of the ways there are.
  void let_go(Rank& rank) {
    const std::uint64_t which = choose_.below(rank.held.size());
    const Slot slot = rank.held[which];
    rank.held.erase(rank.held.begin() + static_cast<std::ptrdiff_t>(which));
    switch (choose_.below(4)) {
      case 0:
        rank.reader->consume(slot);
        return static_cast<void>(rank.reader->settle());
      case 1:
        ++rank.returned;
        return rank.reader->give_back(slot);
      default:
        return static_cast<void>(rank.reader->release(slot));
    }
  }

  void read(std::uint32_t number) {
    Rank& rank = ranks_[number];
    switch (choose_.below(12)) {
      case 0:
        return succeed(number);
      case 1:
        return arena_.rig().leave(number);
      case 2: {
        wait::EndpointWatch watch(*rank.reader);
        nap(watch, 1 + number);
        static_cast<void>(rank.reader->rang_at());
        return;
      }
      default:
        break;
    }
    for (std::uint64_t count = 1 + choose_.below(4); count > 0; --count) {
      if (take(number) != Look::ready) break;
      while (!rank.held.empty() && (rank.held.size() > 6 || !choose_.one_in(3))) {
        let_go(rank);
      }
    }
  }

  // --- waiting

  void nap(wait::Watch& watch, std::uint32_t role) {
    const bool ready = watch.announce();
    if (!raced_) must(ready == watch.ready(), "announcing changes nothing that is waited for");
    if (choose_.one_in(8)) static_cast<void>(wait::monitor(watch, ticks()));
    if (choose_.one_in(8)) {
      pollfd bell{arena_.bell(role), POLLIN, 0};
      const wait::Woke woke = wait::park(watch, {&bell, 1}, 0, nullptr);
      must(woke <= wait::Woke::signal, "a park says why it ended");
    }
  }

  void watch_a_word() {
    const std::uint64_t offset = nasty(choose_, shm::control_offset(arena_.readers()), arena_.capacity());
    const Word* const word = arena_.segment().word(offset);
    if (word == nullptr) return;
    must(offset % 8 == 0 && offset >= shm::control_offset(arena_.readers()) && offset < shm::ring_offset(arena_.readers()),
         "a word that can be had lies in the control area");
    const auto comparison = static_cast<wait::Comparison>(choose_.below(4));
    wait::WordWatch watch(*word, comparison, choose_.any(), choose_.any());
    static_cast<void>(wait::monitor(watch, ticks()));
  }

  // --- the end

  void end() {
    shm::Control& control = arena_.segment().control();
    control.writer.closed.store(1);
    for (std::uint32_t rank = 0; rank < arena_.readers(); ++rank) drain(rank);
    control.owner.shutdown.store(2);
    if (raced_) return;
    for (Rank& rank : ranks_) {
      Slot slot{};
      must(rank.reader->ready(), "a shutdown makes every reader ready");
      must(rank.reader->take(slot) == Look::closed, "a shutdown ends every reader");
    }
    if (writer_) {
      must(writer_->ready(), "a shutdown makes the writer ready");
      must(writer_->reserve(0) == Room::closed, "a shutdown ends the writer");
    }
  }

  // A stream that has ended ends for its readers: after what is there, or with the damage.
  void drain(std::uint32_t number) {
    Rank& rank = ranks_[number];
    const std::uint64_t most = raced_ ? 64 : 2 * arena_.capacity() / shm::kSlotAlign + 64;
    for (std::uint64_t count = 0; count < most; ++count) {
      const Look look = take(number);
      if (look == Look::ready) {
        rank.reader->release(rank.held.back());
        rank.held.pop_back();
      } else if (!raced_ && look != Look::lost) {
        return must(look != Look::empty, "the end of the stream ends a reader's wait");
      }
    }
    must(raced_, "a reader does not go round for ever");
  }

  Arena& arena_;
  Choices& choose_;
  const bool raced_;
  Tally& tally_;
  bool checksum_;
  std::vector<Rank> ranks_;
  std::unique_ptr<queue::Writer> writer_;
};

}  // namespace

void Tally::add(const Tally& other) noexcept {
  for (std::size_t at = 0; at < looks.size(); ++at) looks[at] += other.looks[at];
  for (std::size_t at = 0; at < rooms.size(); ++at) rooms[at] += other.rooms[at];
  takeovers += other.takeovers;
  refused += other.refused;
  damages += other.damages;
}

void execute(Arena& arena, Choices& choose, bool raced, Tally& tally) {
  arena.reset();
  Execution(arena, choose, raced, tally).run();
}

}  // namespace aiospin::fuzz
