// What readers and writers have in common as Python objects: life, failures, and the ladder around an attempt.
//
// An attempt looks once and never waits. Everything that waits is a loop around an attempt: a wake-up is a hint, and
// what was waited for is taken by the next attempt, in the thread that wanted it. That is why no cancellation, time-out
// or signal can lose a message.
#pragma once

#include <memory>

#include "bindings/deadline.h"
#include "bindings/python.h"
#include "wait/policy.h"
#include "wait/watch.h"

namespace aiospin::bindings {

enum class Attempt { done, not_ready, failed };

struct Counters {
  unsigned long long ready = 0, inlined = 0, monitored = 0, parks = 0, signals = 0, rings = 0, messages = 0;
};

struct Endpoint {
  PyObject_HEAD;
  int rank;             // of a reader; -1 for the writer
  bool opened;          // the hot state exists
  bool shut;            // _shut() was called
  bool busy;            // a thread waits in a sync call, the GIL released
  bool monitored;       // the waiter thread may be looking: no attempt before stop_monitoring()
  PyObject* home;           // weak reference to the loop that has the bell; null: ask the Python half
  std::uint64_t parked_ns;  // when the native park began; meaningful while there is one
  std::uint64_t home_peer;  // the writer's seat when that was set: a new one has a pidfd that the loop does not have yet
  int peer_fd;                // what sync sleeps of a reader poll beside the bell: the writer's pidfd, or -1;
  std::uint64_t peer_seat;    // for the writer in this seat; 0: ask the Python half
  PyObject* parked;         // the future of the operation that parked without it
  const void* parked_operation;
  bool in_vain;             // the wait now suspended was woken before and found nothing
  const void* suspending;     // the operation that _suspend() was called for last
  const void* monitored_for;  // the operation that the waiter thread looks for
  unsigned queued;      // operations of tasks that wait
  unsigned long generation;
  PyObject* failure;    // raised once by the next attempt that finds nothing ready
  PyObject* failures_after;  // a list of what the attempts after that one raise, oldest first; or null
  PyObject* ended;      // what use after _shut() raises; null: QueueClosed
  PyObject* anchor;     // kept until the hot state and the last lease are gone
  PyObject* codec;      // decode or encode, null for bytes
  PyObject* horizon_object;
  wait::Horizon* horizon;
  wait::Watch* watch;
  int bell;
  double crowd_at_us;      // when crowding was looked at last
  double delay_at_us;      // when the run-queue delay was looked at last, and what it was
  std::uint64_t delay_ns;
  double monitor_began_us, monitor_for_us;  // of the watch that the waiter thread has
  Counters count;
};

// Opens at first use. False with an exception set when the endpoint is shut, forked or in use by another thread.
bool enter_slowly(Endpoint* self);
inline bool enter(Endpoint* self) {
  if (self->opened && !self->busy && !self->shut && self->generation == fork_generation) [[likely]]
    return true;
  return enter_slowly(self);
}

// Drops the hot state of a shut endpoint, once neither a wait nor a lease needs it.
void retire(Endpoint* self);
extern bool barrier_works;  // membarrier(2) was granted to this process
extern unsigned long main_thread;  // its identity; only it runs Python's signal handlers

// After this the waiter thread does not look at the endpoint.
void stop_monitoring(Endpoint* self);
// The endpoint was opened by this process, and not by one that it was forked from.
inline bool is_ours(const Endpoint* self) { return self->generation == fork_generation; }
// It was opened by a parent of this process. Waits of the parent stand in its line, and never leave it.
inline bool is_inherited(const Endpoint* self) { return self->opened && !is_ours(self); }

// Wakes the task at the head of the line. Keeps an exception that is set; errors of the hook are unraisable.
void kick(Endpoint* self);

// Raises what _fail() left, once. True when there was something.
bool raise_failure(Endpoint* self);

// Lets an attempt that finds nothing ready raise `error`, behind what is to be raised already. False: out of memory.
bool add_failure(Endpoint* self, PyObject* error);
PyObject* role_name(const Endpoint* self);  // "reader 3" or "writer"; new reference
void raise_closed(const Endpoint* self);
void raise_busy(const Endpoint* self);
void raise_timeout(const Endpoint* self, const Deadline& deadline, const char* wanted);

// One sync wait after an attempt that was not ready: inline, monitor, park, until another attempt is due (true), or an
// exception is set (false). Time-outs end it with true too: the caller's next attempt decides.
bool wait_in_thread(Endpoint* self, const Deadline& deadline);

// Watches in place for as long as the policy finds it due. True when ready. The GIL is held for the first 2 us.
bool wait_inline(Endpoint* self, Ticks until);

// After a wait that began then: teaches the policy.
void learn(Endpoint* self, std::uint64_t began_ns);

// Counts bells rung for peers. just_rang(): this thread did so within the last microseconds, so that a wait that begins
// now has a peer's wake-up before it.
void count_rings(Endpoint* self, unsigned rings);
bool just_rang(std::uint64_t now_ns);
std::uint64_t rang_at(const Endpoint* self);
void look_at_crowding(Endpoint* self);
bool has_light_peer(const Endpoint* self);

// Drives an attempt to its end in the calling thread. `attempt(PyObject**)` returns an Attempt.
template <typename F>
PyObject* drive(Endpoint* self, Deadline deadline, const char* wanted, F&& attempt) {
  PyObject* result = nullptr;
  Attempt outcome = attempt(&result);
  if (outcome == Attempt::done) [[likely]] {
    ++self->count.ready;
    return result;
  }
  if (outcome == Attempt::not_ready && !deadline.polls()) {
    deadline.start(ticks());
    do {
      if (!wait_in_thread(self, deadline)) return nullptr;
      outcome = attempt(&result);
    } while (outcome == Attempt::not_ready && !deadline.passed(ticks()));
  }
  if (outcome == Attempt::not_ready) raise_timeout(self, deadline, wanted);
  return result;
}

int endpoint_traverse(Endpoint* self, visitproc visit, void* arg);
void endpoint_clear(Endpoint* self);

// _fail, _ready, _announce, _drain, _horizon_us, fileno, arm, ...: the same for both.
extern PyMethodDef endpoint_methods[];

}  // namespace aiospin::bindings
