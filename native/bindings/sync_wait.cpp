// The ladder in the calling thread, with Python's signals and threads served on the way.
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <vector>

#include "bindings/endpoint.h"
#include "bindings/reader.h"
#include "bindings/writer.h"
#include "platform/membarrier.h"
#include "wait/ladder.h"

namespace aiospin::bindings {

namespace {

constexpr double kGraceUs = 2;              // watched before anything else is considered, the GIL held
constexpr double kSignalChunkUs = 1000;     // a wait that never parks serves signals this often
constexpr double kRecheckS = 1;             // every park is looked after this often
constexpr double kRecheckUnbarrieredS = 0.01;  // where a peer's plain stores cannot be ordered

// Signals that ppoll() lets through atomically: all but those that a fault raises in this very thread.
const sigset_t& deferrable() {
  static const sigset_t set = [] {
    sigset_t s;
    sigfillset(&s);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&s, fault);
    return s;
  }();
  return set;
}

bool in_main_thread() {
  // Only the main thread runs Python's signal handlers.
  return PyThread_get_thread_ident() == main_thread;
}

// Blocks signals for as long as it lives, in the main thread; elsewhere it does nothing.
class DeferSignals {
 public:
  DeferSignals() : active_(in_main_thread()) {
    if (active_) pthread_sigmask(SIG_BLOCK, &deferrable(), &before_);
  }
  ~DeferSignals() {
    if (active_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  DeferSignals(const DeferSignals&) = delete;
  DeferSignals& operator=(const DeferSignals&) = delete;
  const sigset_t* mask_while_asleep() const { return active_ ? &before_ : nullptr; }

 private:
  const bool active_;
  sigset_t before_;
};

bool warn_if_in_event_loop(Endpoint* self) {
  const Ref loop(PyObject_CallNoArgs(classes.peek_running_loop));
  if (!loop) return false;
  return loop.get() == Py_None || Ref(call_hook(reinterpret_cast<PyObject*>(self), names.blocking));
}

// The pidfds of peers. A reader has one, which is asked for again when another writer sits there or `_forget_peer()` was
// called: with a message every few milliseconds the Python half would cost more than all the rest of a sleep.
bool add_peers(Endpoint* self, std::vector<pollfd>& descriptors) {
  const std::uint64_t seat = self->rank < 0 ? 0 : seat_of_writer(as_reader(self));
  if (seat != 0 && self->peer_seat == seat) {
    if (self->peer_fd >= 0) descriptors.push_back({self->peer_fd, POLLIN, 0});
    return true;
  }
  const Ref peers(call_hook(reinterpret_cast<PyObject*>(self), names.peer_fds));
  if (!peers) return false;
  const Ref fast(PySequence_Fast(peers.get(), "_peer_fds() must return a sequence"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    const long fd = PyLong_AsLong(PySequence_Fast_GET_ITEM(fast.get(), i));
    if (fd == -1 && PyErr_Occurred()) return false;
    descriptors.push_back({static_cast<int>(fd), POLLIN, 0});
  }
  if (self->rank < 0) return true;
  const Ref in_sets(PyObject_GetAttr(reinterpret_cast<PyObject*>(self), names.in_sets));
  if (!in_sets) return false;
  if (in_sets.get() == Py_False) {  // sets want to be told of each sleep
    self->peer_fd = descriptors.size() > 1 ? descriptors[1].fd : -1;
    self->peer_seat = seat;
  }
  return true;
}

bool recheck(Endpoint* self, double waited_s) {
  const Ref waited(PyFloat_FromDouble(waited_s));
  if (!waited) return false;
  return static_cast<bool>(
      Ref(PyObject_CallMethodOneArg(reinterpret_cast<PyObject*>(self), names.recheck, waited.get())));
}

// Runs signal handlers. False with an exception set: of a handler, or because it has forked and this is the child, whose
// wait must leave the parent's bell alone.
bool serve_signals(Endpoint* self) {
  return PyErr_CheckSignals() == 0 && (!is_inherited(self) || enter_slowly(self));
}

// Watches until ready or `until`; a wait without end comes up for signals now and then. 1 ready, 0 not, -1 exception.
int watch_released(Endpoint* self, const Deadline& deadline, Ticks until) {
  for (;;) {
    const Ticks now = ticks();
    const Ticks chunk = std::min(deadline.earlier(until), now + from_us(kSignalChunkUs));
    bool ready;
    Py_BEGIN_ALLOW_THREADS;
    ready = wait::monitor(*self->watch, chunk);
    Py_END_ALLOW_THREADS;
    if (ready || self->shut) return 1;
    if (deadline.earlier(until) <= ticks()) return 0;
    if (!serve_signals(self)) return -1;
  }
}

bool sleep_until_woken(Endpoint* self, const Deadline& deadline, Ticks began) {
  std::vector<pollfd> descriptors;
  for (;;) {
    descriptors.assign(1, {self->bell, POLLIN, 0});
    if (!add_peers(self, descriptors)) return false;
    wait::Woke woke;
    {
      const DeferSignals signals;
      // A signal that came before the block is served here; one that comes later ends the sleep.
      if (!serve_signals(self)) return false;
      if (self->failure != nullptr || self->shut) return true;
      double limit_s = barrier_works || !has_light_peer(self) ? kRecheckS : kRecheckUnbarrieredS;
      if (deadline.limited()) limit_s = std::min(limit_s, deadline.remaining_s(ticks()));
      ++self->count.parks;
      Py_BEGIN_ALLOW_THREADS;
      woke = wait::park(*self->watch, descriptors, static_cast<std::int64_t>(limit_s * 1e9),
                        signals.mask_while_asleep());
      Py_END_ALLOW_THREADS;
    }
    switch (woke) {
      case wait::Woke::ready:
        return true;
      case wait::Woke::signal:
        ++self->count.signals;
        if (!serve_signals(self)) return false;
        break;
      case wait::Woke::other:
      case wait::Woke::timeout:
        if (!recheck(self, to_us(ticks() - began) / 1e6)) return false;
        break;
      case wait::Woke::bell:
        break;
    }
    if (self->failure != nullptr || self->shut || self->watch->ready() || deadline.passed(ticks())) return true;
  }
}

int wait_busy(Endpoint* self, const Deadline& deadline) {
  const Ticks began = ticks();
  if (wait::monitor(*self->watch, deadline.earlier(began + from_us(kGraceUs)))) {
    ++self->count.inlined;
    return 1;
  }
  if (!warn_if_in_event_loop(self)) return -1;
  look_at_crowding(self);
  const double horizon_us = self->horizon->horizon_us(to_us(began));
  const double inline_us = self->horizon->due() ? self->horizon->inline_us(just_rang(monotonic_ns())) : 0;
  const double watch_us = std::max(horizon_us, inline_us);
  if (watch_us > kGraceUs) {
    const Ticks until = watch_us < 1e15 ? began + from_us(watch_us) : std::numeric_limits<Ticks>::max();
    const int watched = watch_released(self, deadline, until);
    const double spent_us = to_us(ticks() - began) - inline_us;
    if (spent_us > 0) self->horizon->spend(spent_us, to_us(ticks()));
    if (watched != 0) {
      ++(spent_us > 0 ? self->count.monitored : self->count.inlined);
      return watched;
    }
  }
  if (deadline.passed(ticks())) return 1;
  return sleep_until_woken(self, deadline, began) ? 1 : -1;
}

}  // namespace

bool barrier_works = false;
unsigned long main_thread = 0;

bool wait_in_thread(Endpoint* self, const Deadline& deadline) {
  if (self->busy) {
    raise_busy(self);
    return false;
  }
  const std::uint64_t began_ns = monotonic_ns();
  self->busy = true;
  const int outcome = wait_busy(self, deadline);
  self->busy = false;
  pass_turn(self);
  if (self->rank < 0 && self->queued != 0 && outcome > 0) kick(self);  // tasks that queue behind this thread
  if (self->shut) {
    retire(self);  // another thread closed it meanwhile
  } else if (outcome > 0) {
    learn(self, began_ns);
  }
  return outcome > 0;
}

}  // namespace aiospin::bindings
