// Parking a task without the Python half: the way of a reader whose messages come every few milliseconds.
//
// The first wait in a loop goes through `_suspend`, which puts the bell into the loop and says so (`_home`). From then on
// a wait that parks at once needs nothing but an announcement and a future, and the bell's callback resolves it: each
// Python function on this path would cost microseconds, being cold after the pause.
//
// Whatever is out of the ordinary goes through `_suspend`: a time-out, a wait that is worth watching, another loop, a
// wake-up that brought nothing (a peer may have come or gone), a hook for tests.
#include "bindings/parking.h"

#include "platform/clock.h"
#include "shm/doorbell.h"

namespace aiospin::bindings {

namespace {

PyObject* object(Endpoint* self) { return reinterpret_cast<PyObject*>(self); }

bool is_home(const Endpoint* self, PyObject* loop) { return referent(self->home).get() == loop; }

struct BellCallbackObject {
  PyObject_HEAD;
  PyObject* endpoint;  // a weak reference: a loop must not keep ends that nobody has
};

PyObject* call_bell(PyObject* op, PyObject*, PyObject*) {
  const Guard guard;
  const Ref endpoint = referent(reinterpret_cast<BellCallbackObject*>(op)->endpoint);
  if (!endpoint) Py_RETURN_NONE;
  Endpoint* self = as_endpoint(endpoint.get());
  if (!self->opened) Py_RETURN_NONE;
  shm::doorbell::drain(self->bell);
  const int woken = wake_parked(self);
  if (woken < 0) return nullptr;
  if (woken == 0 && !Ref(call_hook(endpoint.get(), names.kick))) return nullptr;
  Py_RETURN_NONE;
}

void dealloc_bell(PyObject* op) {
  const Guard guard;
  Py_DECREF(reinterpret_cast<BellCallbackObject*>(op)->endpoint);
  PyTypeObject* type = Py_TYPE(op);
  type->tp_free(op);
  Py_DECREF(type);
}

PyType_Slot bell_slots[] = {
    {Py_tp_doc, const_cast<char*>("What a loop calls when an end's bell is readable.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_bell)},
    {Py_tp_call, reinterpret_cast<void*>(call_bell)},
    {0, nullptr},
};
PyType_Spec bell_spec = {"aiospin._native.BellCallback", sizeof(BellCallbackObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, bell_slots};
PyTypeObject* bell_type;

}  // namespace

Parking park_here(OperationObject* self, Ref& future) {
  Endpoint* endpoint = self->endpoint;
  if (endpoint->home == nullptr || !endpoint->opened || !reads(self) || self->deadline.limited() || self->left || hooked()) {
    return Parking::elsewhere;
  }
  if (endpoint->home_peer != seat_of_writer(as_reader(endpoint))) return Parking::elsewhere;  // to be watched as well
  if (endpoint->horizon->horizon_us(to_us(ticks())) > 0) return Parking::elsewhere;
  const Ref loop(PyObject_CallNoArgs(classes.get_running_loop));
  if (!loop) return Parking::failed;
  if (!is_home(endpoint, loop.get())) return Parking::elsewhere;
  future = Ref(PyObject_CallMethodNoArgs(loop.get(), names.create_future));
  if (!future) return Parking::failed;
  // A signal handler or another thread may have run meanwhile, and closed the reader: the next attempt says so.
  if (!endpoint->opened) return Parking::ready;
  ++endpoint->count.parks;
  if (endpoint->watch->announce() || endpoint->failure != nullptr) return Parking::ready;
  endpoint->parked = Py_NewRef(future.get());
  endpoint->parked_ns = monotonic_ns();
  endpoint->parked_operation = self;
  return Parking::parked;
}

void leave_parking(OperationObject* self) {
  Endpoint* endpoint = self->endpoint;
  if (endpoint->parked_operation != self) return;
  endpoint->parked_operation = nullptr;
  Py_CLEAR(endpoint->parked);
}

int wake_parked(Endpoint* self) {
  const Ref future = Ref::to(self->parked);
  if (!future) return 0;
  const Ref done(PyObject_CallMethodNoArgs(future.get(), names.done));
  if (!done) return -1;
  if (done.get() == Py_True) return 1;  // answered or cancelled, and the task has not run yet
  return Ref(PyObject_CallMethodOneArg(future.get(), names.set_result, Py_True)) ? 1 : -1;
}

PyObject* new_bell_callback(Endpoint* self) {
  const Ref endpoint(PyWeakref_NewRef(object(self), nullptr));
  if (!endpoint) return nullptr;
  auto* callback = PyObject_New(BellCallbackObject, bell_type);
  if (callback != nullptr) callback->endpoint = Py_NewRef(endpoint.get());
  return reinterpret_cast<PyObject*>(callback);
}

bool make_parking_types(PyObject* module) {
  bell_type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &bell_spec, nullptr));
  return bell_type != nullptr;
}

}  // namespace aiospin::bindings
