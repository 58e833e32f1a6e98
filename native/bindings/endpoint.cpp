// What keeps an endpoint honest: who may use it when, and what its waits teach the policy.
#include "bindings/endpoint.h"

#include <algorithm>
#include <cmath>

#include "bindings/reader.h"
#include "bindings/writer.h"
#include "platform/run_delay.h"
#include "queue/gating.h"
#include "wait/ladder.h"
#include "wait/service.h"

namespace aiospin::bindings {

namespace {

// Dropping the GIL costs 0.2 us alone and up to a switch interval (5 ms) beside a CPU-bound thread: not worth it for
// waits that end at once.
constexpr double kHoldGilUs = 2;
constexpr double kCrowdEveryUs = 10'000;
constexpr double kDelayEveryUs = 100'000;

constexpr std::uint64_t kJustNs = 10'000;
thread_local std::uint64_t last_ring_ns = 0;

const shm::Segment& segment_of(const Endpoint* self) {
  return self->rank < 0 ? as_writer(self)->core->segment() : as_reader(self)->core->segment();
}

void raise_inherited(const Endpoint* self) {
  const Ref role(role_name(self));
  if (role) {
    PyErr_Format(classes.forked_use, "%U was claimed by the parent of this process; give each child its own endpoint",
                 role.get());
  }
}

}  // namespace

bool enter_slowly(Endpoint* self) {
  if (self->shut) {
    if (self->ended != nullptr) {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(self->ended)), self->ended);
    } else {
      raise_closed(self);
    }
    return false;
  }
  if (is_inherited(self)) {
    raise_inherited(self);
    return false;
  }
  if (self->busy) {
    raise_busy(self);
    return false;
  }
  if (!self->opened && !Ref(call_hook(reinterpret_cast<PyObject*>(self), names.claim))) return false;
  if (!self->opened) PyErr_SetString(PyExc_RuntimeError, "_claim() returned without opening the endpoint");
  return self->opened;
}

void stop_monitoring(Endpoint* self) {
  if (!self->monitored) return;
  self->monitored = false;
  const double now_us = to_us(ticks());
  self->horizon->spend(std::min(now_us - self->monitor_began_us, self->monitor_for_us), now_us);
  if (self->opened) wait::Service::instance().cancel(*self->watch);
}

void kick(Endpoint* self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!Ref(call_hook(reinterpret_cast<PyObject*>(self), names.kick))) {
    PyErr_WriteUnraisable(reinterpret_cast<PyObject*>(self));
  }
  PyErr_Restore(type, value, traceback);
}

bool raise_failure(Endpoint* self) {
  if (self->failure == nullptr) [[likely]]
    return false;
  const Ref failure(std::exchange(self->failure, nullptr));
  if (PyObject* after = self->failures_after; after != nullptr && PyList_GET_SIZE(after) > 0) {
    self->failure = Py_NewRef(PyList_GET_ITEM(after, 0));
    if (PyList_SetSlice(after, 0, 1, nullptr) < 0) return true;
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.get())), failure.get());
  return true;
}

bool add_failure(Endpoint* self, PyObject* error) {
  if (self->failure == nullptr) {
    self->failure = Py_NewRef(error);
    return true;
  }
  if (self->failures_after == nullptr) self->failures_after = PyList_New(0);
  return self->failures_after != nullptr && PyList_Append(self->failures_after, error) == 0;
}

PyObject* role_name(const Endpoint* self) {
  // The Python half knows it from the start; the rank here is known once the role is claimed.
  return PyObject_GetAttr(reinterpret_cast<PyObject*>(const_cast<Endpoint*>(self)), names.role_name);
}

void raise_closed(const Endpoint* self) {
  const Ref role(role_name(self));
  if (role) PyErr_Format(classes.queue_closed, "%U is closed", role.get());
}

void raise_busy(const Endpoint* self) {
  if (is_inherited(self)) {  // who waits, or holds the claim, does so in the parent
    raise_inherited(self);
  } else if (self->rank < 0) {
    PyErr_SetString(classes.writer_busy, "another task or thread waits on the writer, or holds its claim");
  } else {
    PyErr_Format(classes.reader_busy, "another task or thread waits on reader %d", self->rank);
  }
}

void raise_timeout(const Endpoint* self, const Deadline& deadline, const char* wanted) {
  const Ref role(role_name(self));
  const Ref seconds(PyFloat_FromDouble(deadline.seconds));
  if (role && seconds) PyErr_Format(PyExc_TimeoutError, "%U: no %s within %R s", role.get(), wanted, seconds.get());
}

std::uint64_t rang_at(const Endpoint* self) { return self->rank < 0 ? 0 : as_reader(self)->core->rang_at(); }

void count_rings(Endpoint* self, unsigned rings) {
  if (rings == 0) [[likely]]
    return;
  self->count.rings += rings;
  last_ring_ns = monotonic_ns();
}

bool just_rang(std::uint64_t now_ns) { return now_ns - last_ring_ns < kJustNs; }

void learn(Endpoint* self, std::uint64_t began_ns) {
  const bool rang_peer = just_rang(began_ns);
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t rang = rang_at(self);
  if (rang >= began_ns && rang <= now) {
    self->horizon->observe_park(static_cast<double>(now - rang) / 1e3);
    self->horizon->observe(static_cast<double>(rang - began_ns) / 1e3, rang_peer);
  } else {
    self->horizon->observe(static_cast<double>(now - began_ns) / 1e3, rang_peer);
  }
}

void look_at_crowding(Endpoint* self) {
  const double now_us = to_us(ticks());
  if (now_us - self->crowd_at_us < kCrowdEveryUs) [[likely]]
    return;
  self->crowd_at_us = now_us;
  self->horizon->seat(queue::present(segment_of(self)));
  if (now_us - self->delay_at_us < kDelayEveryUs) return;
  const std::uint64_t delay = run_delay_ns();
  if (self->delay_at_us != 0) {
    self->horizon->observe_run_delay(static_cast<double>(delay - self->delay_ns) / 1e3 / (now_us - self->delay_at_us));
  }
  self->delay_at_us = now_us;
  self->delay_ns = delay;
}

bool has_light_peer(const Endpoint* self) { return queue::has_light(segment_of(self)); }

bool wait_inline(Endpoint* self, Ticks until) {
  const Ticks held = std::min(until, ticks() + from_us(kHoldGilUs));
  if (wait::monitor(*self->watch, held)) return true;
  if (held == until) return false;
  bool ready;
  self->busy = true;
  Py_BEGIN_ALLOW_THREADS;
  ready = wait::monitor(*self->watch, until);
  Py_END_ALLOW_THREADS;
  self->busy = false;
  if (self->shut) retire(self);
  return ready;
}

void retire(Endpoint* self) {
  if (self->busy || !self->opened) return;
  stop_monitoring(self);
  if (self->rank < 0) {
    if (as_writer(self)->claimed) return;
    delete as_writer(self)->core;
    as_writer(self)->core = nullptr;
  } else {
    if (as_reader(self)->leases != 0) return;
    delete as_reader(self)->core;
    as_reader(self)->core = nullptr;
  }
  delete std::exchange(self->watch, nullptr);
  self->opened = false;
  Py_CLEAR(self->anchor);
}

int endpoint_traverse(Endpoint* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->failure);
  Py_VISIT(self->failures_after);
  Py_VISIT(self->home);
  Py_VISIT(self->parked);
  Py_VISIT(self->ended);
  Py_VISIT(self->anchor);
  Py_VISIT(self->codec);
  Py_VISIT(self->horizon_object);
  return 0;
}

void endpoint_clear(Endpoint* self) {
  Py_CLEAR(self->failure);
  Py_CLEAR(self->failures_after);
  Py_CLEAR(self->home);
  Py_CLEAR(self->parked);
  Py_CLEAR(self->ended);
  Py_CLEAR(self->anchor);
  Py_CLEAR(self->codec);
}

}  // namespace aiospin::bindings
