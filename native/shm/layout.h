// The bytes that every process of a queue shares, drawn once.
//
//   0                 Header, then one BellIdentity per role (0 = writer, 1 + r = reader r)
//   control_offset    Control: lines owned by the owner and the writer
//                     ReaderLines[readers]: lines owned by each reader
//                     Gate[readers]: the writer's word to each reader
//   ring_offset       the ring: capacity bytes
//
// Guarantee: every word below has one writing process, named beside it, so nothing here needs a
// read-modify-write between processes, and a plain-store backend can speak the same layout.
// Assumption: little-endian, 64-bit words, lock-free and address-free atomics.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "platform/cacheline.h"
#include "platform/word.h"

namespace aiospin::shm {

using aiospin::Word;

static_assert(std::endian::native == std::endian::little);

inline constexpr std::uint64_t kMagic = 0x004e4950534f4941;  // "AIOSPIN\0", little-endian
inline constexpr std::uint32_t kLayoutVersion = 1;
inline constexpr std::uint32_t kMaxReaders = 1024;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kRingAlign = 65536;  // the largest page size in the field: the ring is mapped on its own

enum HeaderFlags : std::uint32_t { kChecksum = 1 };

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t word_bytes;  // 8
  std::uint64_t segment_bytes;
  std::uint64_t capacity;  // ring bytes, a multiple of kRingAlign
  std::uint32_t readers;
  std::uint32_t flags;  // HeaderFlags
  std::uint8_t identity[16];
  std::uint64_t creator_pid;
  std::uint64_t creator_start;  // clock ticks since boot, /proc/<pid>/stat field 22
  std::uint8_t boot_id[16];
  std::uint64_t pid_namespace;  // inode of /proc/self/ns/pid
  std::uint64_t control_offset;
  std::uint64_t ring_offset;
  std::uint64_t segment_device;
  std::uint64_t segment_inode;
};
inline constexpr std::size_t kBellsOffset = 512;
struct BellIdentity {
  std::uint64_t device;
  std::uint64_t inode;
};
static_assert(offsetof(Header, capacity) == 24 && offsetof(Header, identity) == 40 &&
              offsetof(Header, control_offset) == 96 && sizeof(Header) == 128 && sizeof(Header) <= kBellsOffset &&
              sizeof(BellIdentity) == 16);

// Who holds a role. Written by the holder; read by peers, off the hot path.
enum SeatFlags : std::uint64_t {
  kPresent = 1,  // claimed and neither detached nor closed; stays set when its process is killed
  kLight = 2,    // publishes and parks with plain stores: peers must issue a process-wide barrier before they sleep
  kVacated = 4,  // given back by its holder: a free role whose seat says neither this nor kPresent was scribbled on
};
struct Seat {
  Word state;   // tenure << kTenureShift | SeatFlags, where tenure counts how often the role was claimed: one store seats
                // a holder, so that nobody can be killed half-seated
  Word pid;     // in pid_namespace
  Word start;   // start time of pid, as Header::creator_start
  Word pid_namespace;
};
inline constexpr unsigned kTenureShift = 8;

struct alignas(kLine) OwnerLine {
  Word shutdown;  // 0 open, 1 readers drain and then end, 2 ends at once
};
struct alignas(kLine) PublishedLine {
  Word cursor;  // W: everything below it is readable. Monitored by readers, so nothing shares its line
};
struct JournalEntry {
  Word cursor;    // a value that W had or is about to get
  Word sequence;  // number of the message that starts or goes on there
};
struct alignas(kLine) JournalLine {
  JournalEntry entry[2];  // written in turn, before W; a successor takes the entry whose cursor equals W
};
struct alignas(kLine) RoomLine {
  Word needed;  // the writer sleeps until every gating reader has released up to here
  Word epoch;   // the writer's park epoch; only grows
};
struct alignas(kLine) WriterSeatLine {
  Seat seat;
  Word closed;  // 1: the stream has ended; a later writer clears it
};
struct Control {
  OwnerLine owner;
  PublishedLine published;
  JournalLine journal;
  RoomLine room;
  WriterSeatLine writer;
};
static_assert(offsetof(Control, published) == 128 && offsetof(Control, journal) == 256 &&
              offsetof(Control, room) == 384 && offsetof(Control, writer) == 512 && sizeof(Control) == 640);

struct alignas(kLine) ReleasedLine {
  Word cursor;  // R[r]: every slot below it is given back. Monitored by a writer that wants room
};
struct alignas(kLine) ParkLine {
  Word epoch;  // F[r], the reader's park epoch; only grows, a successor goes on from it
  Word stay;   // even: wants to gate the writer; odd: has left. Starts at 0
};
struct alignas(kLine) ReaderSeatLine {
  Seat seat;
  Word acquired;  // end of the last slot handed out; what lies between R and it may be delivered twice
};
struct ReaderLines {
  ReleasedLine released;
  ParkLine park;
  ReaderSeatLine seat;
};
static_assert(offsetof(ReaderLines, park) == 128 && offsetof(ReaderLines, seat) == 256 && sizeof(ReaderLines) == 384);

// Written by the writer. Rank r gates it exactly while stay == gate.
struct Gate {
  Word gate;     // the `stay` that the writer confirmed; stay | 1 when it dropped the reader
  Word start;    // where a rank confirmed after leaving begins; 0 until then
  Word rang_at;  // CLOCK_MONOTONIC nanoseconds of the last ring: tells a woken reader what its sleep cost
  Word reserved;
};
static_assert(sizeof(Gate) == 32);

// A slot in the ring, 64-byte aligned, payload behind it. Written before W, immutable until released.
enum SlotFlags : std::uint32_t { kHasChecksum = 1 };
struct alignas(64) SlotHeader {
  std::uint64_t sequence;  // message number, from 0; all fragments of one message carry the same
  std::uint64_t total;     // bytes of the whole message
  std::uint64_t offset;    // of this slot's first payload byte in the message; 0 begins a message
  std::uint64_t size;      // payload bytes in this slot
  std::uint32_t flags;     // SlotFlags
  std::uint32_t checksum;  // CRC-32C of this slot's payload
  std::uint64_t reserved[3];
};
inline constexpr std::size_t kSlotHeader = sizeof(SlotHeader);
inline constexpr std::size_t kSlotAlign = 64;
inline constexpr std::uint64_t kLargestMessage = std::uint64_t{1} << 47;  // no process has room for more: damage
inline constexpr std::uint64_t kFarthest = std::uint64_t{1} << 63;  // no cursor gets that far in 29 years at 10 GB/s: damage
static_assert(kSlotHeader == 64 && offsetof(SlotHeader, flags) == 32);

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }
constexpr std::uint64_t stride(std::uint64_t payload) { return align_up(kSlotHeader + payload, kSlotAlign); }

constexpr std::uint64_t control_offset(std::uint64_t readers) {
  return align_up(kBellsOffset + sizeof(BellIdentity) * (readers + 1), kPage);
}
constexpr std::uint64_t gates_offset(std::uint64_t readers) {
  return control_offset(readers) + sizeof(Control) + sizeof(ReaderLines) * readers;
}
constexpr std::uint64_t ring_offset(std::uint64_t readers) {
  return align_up(gates_offset(readers) + sizeof(Gate) * readers, kRingAlign);
}

}  // namespace aiospin::shm
