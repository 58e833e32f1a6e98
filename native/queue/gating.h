// Who gates the writer, and how far those readers have released.
#pragma once

#include <cstdint>
#include <limits>

#include "shm/cursor.h"
#include "shm/segment.h"

namespace aiospin::queue {

inline constexpr std::uint64_t kNobody = std::numeric_limits<std::uint64_t>::max();

// A rank's standing, from the reader's word `stay` and the writer's word `gate`.
//
//   stay   gate        standing
//   even   == stay     gates the writer
//   odd    any         left on purpose
//   even   == stay|1   dropped by the writer
//   even   other       wants to join; the writer confirms at its next publish
enum class Standing : std::uint8_t { gates, left, dropped, joining };

inline Standing standing(const shm::Segment& segment, std::uint32_t rank) noexcept {
  // sync:stay seq_cst: a join or a leave is visible to a publish whose exchange follows it.
  const std::uint64_t stay = segment.reader(rank).park.stay.load(std::memory_order_seq_cst);
  // sync:gate acquire: `start` is visible once the gate is.
  const std::uint64_t gate = segment.gate(rank).gate.load(std::memory_order_acquire);
  if (stay % 2 != 0) return Standing::left;
  if (gate == stay) return Standing::gates;
  return gate == (stay | 1) ? Standing::dropped : Standing::joining;
}

struct Slowest {
  std::uint64_t released;  // kNobody when no rank gates
  std::uint32_t rank;
  bool gated;  // some rank gates; its cursor may have been scribbled to any value
};

// The least released cursor among the ranks that gate. `look_again` in the sense of the doorbell: seq_cst loads, so that
// the last of several readers to release in the total order sees all of them and rings.
inline Slowest slowest(const shm::Segment& segment) noexcept {
  Slowest found{kNobody, 0, false};
  for (std::uint32_t rank = 0; rank < segment.readers(); ++rank) {
    if (standing(segment, rank) != Standing::gates) continue;
    // relaxed: ordered by the acquire of the gate word above.
    const std::uint64_t start = segment.gate(rank).start.load(std::memory_order_relaxed);
    const std::uint64_t cursor = shm::cursor::look_again(segment.reader(rank).released.cursor);
    const std::uint64_t released = cursor > start ? cursor : start;
    if (!found.gated || released < found.released) found = {released, rank, true};
  }
  return found;
}

// Whether some role is played by a process that publishes with plain stores.
inline bool has_light(const shm::Segment& segment) noexcept {
  // relaxed: set once, when the role was claimed, and the claim rang.
  const auto light = [](const shm::Seat& seat) { return (seat.state.load(std::memory_order_relaxed) & shm::kLight) != 0; };
  if (light(segment.control().writer.seat)) return true;
  for (std::uint32_t rank = 0; rank < segment.readers(); ++rank) {
    if (light(segment.reader(rank).seat.seat)) return true;
  }
  return false;
}

// How many roles are claimed. Those of killed processes count until somebody claims them anew.
inline unsigned present(const shm::Segment& segment) noexcept {
  // relaxed: an estimate for the policy.
  const auto seated = [](const shm::Seat& seat) {
    return static_cast<unsigned>(seat.state.load(std::memory_order_relaxed) & shm::kPresent);
  };
  unsigned count = seated(segment.control().writer.seat);
  for (std::uint32_t rank = 0; rank < segment.readers(); ++rank) count += seated(segment.reader(rank).seat.seat);
  return count;
}

}  // namespace aiospin::queue
