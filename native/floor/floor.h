// What the machine itself can do: no queue is faster than these, and every benchmark names them beside its figures.
//
// Guarantee: nothing here knows of queues, doorbells or Python; each measurement ends by itself and leaves no process,
// thread or descriptor behind. All durations in nanoseconds. Failures to set up are std::system_error.
// Assumption: the caller's thread may be blocked for the time that was asked for; it is pinned meanwhile where said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aiospin::floor {

// Two threads, each pinned to a CPU of its own, pass a number back and forth through two cache lines. One figure per
// `chunk` passes there and back: the time of one pass. Throws where the caller may use fewer than two CPUs.
std::vector<double> bounce(std::size_t chunks, std::size_t chunk);

struct Wakes {
  std::vector<std::uint64_t> one_way;     // from before the write to after the read, of the last reader
  std::vector<std::uint64_t> round_trip;  // from before the write to after the read of the answer; empty without answers
  std::vector<std::uint64_t> write_cost;  // of the writes of one message
  std::uint64_t reader_cpu = 0;           // of the first reader's thread, over all messages
  std::uint64_t wall = 0;
};

// Another process writes `count` messages into a pipe, `gap` apart; this one sleeps in epoll, reads, and answers through
// another pipe. Gaps too short to sleep for are spun away.
Wakes wake(std::size_t count, std::uint64_t gap);

// This process writes `count` messages into `readers` pipes, `gap` apart; each reader is a process that sleeps in epoll.
Wakes fan(std::size_t readers, std::size_t count, std::uint64_t gap);

// Copies `nbytes` from one buffer into a ring of `ring` bytes, mapped twice and shared, going round it as a queue does.
// Returns the time of all `count` copies, after a tenth more to warm up.
std::uint64_t copy(std::size_t count, std::size_t nbytes, std::size_t ring);

}  // namespace aiospin::floor
