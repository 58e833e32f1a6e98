// What the Python half asks of a reader or writer: opening, waiting on its behalf, closing.
#include <pybind11/pybind11.h>

#include <stdexcept>

#include "bindings/cold.h"
#include "bindings/endpoint.h"
#include "bindings/parking.h"
#include "bindings/reader.h"
#include "bindings/writer.h"
#include "shm/doorbell.h"
#include "wait/service.h"

namespace py = pybind11;

namespace aiospin::bindings {

namespace {

bool refuse_unopened(Endpoint* self) {
  if (self->opened) return false;
  if (!self->shut) {
    PyErr_SetString(PyExc_RuntimeError, "the endpoint is not opened");
  } else {
    raise_closed(self);
  }
  return true;
}

// Runs what may throw C++ exceptions, and returns None or the object.
template <typename F>
PyObject* translate(F&& body) {
  try {
    return body().release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

void set_common(Endpoint* self, int bell, py::handle horizon, py::handle codec, py::handle anchor) {
  self->bell = bell;
  self->horizon = py::cast<wait::Horizon*>(horizon);
  self->watch->set_rung(self->horizon->tuning().rung);
  Py_XSETREF(self->horizon_object, Py_NewRef(horizon.ptr()));
  Py_XSETREF(self->codec, codec.is_none() ? nullptr : Py_NewRef(codec.ptr()));
  Py_XSETREF(self->anchor, Py_NewRef(anchor.ptr()));
  self->generation = fork_generation;
  self->opened = true;
}

// _open(mapping, rank, bell, writer_bell, horizon, decode, checksum, anchor)
PyObject* open_reader(PyObject* self, PyObject* args) {
  const Guard guard;
  return translate([&]() -> py::object {
    ReaderObject* reader = as_reader(as_endpoint(self));
    const auto given = py::reinterpret_borrow<py::tuple>(args);
    if (given.size() != 8) throw py::type_error("_open() takes 8 arguments");
    if (reader->opened) throw py::value_error("the endpoint is open already");
    reader->rank = given[1].cast<int>();
    reader->core = new queue::Reader(segment_of(given[0]), given[1].cast<std::uint32_t>(), given[3].cast<int>(),
                                     given[6].cast<bool>());
    reader->watch = new wait::EndpointWatch<queue::Reader>(*reader->core);
    set_common(reader, given[2].cast<int>(), given[4], given[5], given[7]);
    return py::none();
  });
}

// _open(mapping, bell, reader_bells, horizon, encode, checksum, threadsafe, anchor)
PyObject* open_writer(PyObject* self, PyObject* args) {
  const Guard guard;
  return translate([&]() -> py::object {
    WriterObject* writer = as_writer(as_endpoint(self));
    const auto given = py::reinterpret_borrow<py::tuple>(args);
    if (given.size() != 8) throw py::type_error("_open() takes 8 arguments");
    if (writer->opened) throw py::value_error("the endpoint is open already");
    std::vector<int> bells;
    for (const py::handle bell : given[2]) bells.push_back(bell.cast<int>());
    try {
      writer->core = new queue::Writer(segment_of(given[0]), std::move(bells));
    } catch (const std::system_error&) {
      throw;  // the kernel refused the mapping: no damage
    } catch (const std::runtime_error& damage) {
      PyErr_SetString(classes.corrupt_slot, damage.what());
      throw py::error_already_set();
    }
    writer->checksum = given[5].cast<bool>();
    writer->threadsafe = given[6].cast<bool>();
    writer->watch = new wait::EndpointWatch<queue::Writer>(*writer->core);
    set_common(writer, given[1].cast<int>(), given[3], given[4], given[7]);
    return py::none();
  });
}

PyObject* shut(PyObject* op, PyObject* error) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  self->shut = true;
  Py_XSETREF(self->ended, error == Py_None ? nullptr : Py_NewRef(error));
  if (self->opened) {
    if (self->busy) shm::doorbell::ring(self->bell);  // the thread that waits retires the hot state
    retire(self);
  }
  Py_RETURN_NONE;
}

PyObject* fail(PyObject* op, PyObject* error) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  // Each death is told. Anything else is met again by whoever uses the end, and need not pile up.
  if (PyErr_GivenExceptionMatches(error, classes.peer_died)) {
    if (!add_failure(self, error)) return nullptr;
  } else {
    Py_XSETREF(self->failure, Py_NewRef(error));
  }
  Py_RETURN_NONE;
}

bool ready_now(Endpoint* self) { return self->shut || self->failure != nullptr || self->watch->ready(); }

PyObject* ready(PyObject* op, PyObject*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (self->shut) Py_RETURN_TRUE;
  return refuse_unopened(self) ? nullptr : PyBool_FromLong(ready_now(self));
}

PyObject* announce(PyObject* op, PyObject*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (refuse_unopened(self)) return nullptr;
  ++self->count.parks;
  const bool answered = self->watch->announce();
  return PyBool_FromLong(answered || ready_now(self));
}

PyObject* drain(PyObject* op, PyObject*) {
  const Guard guard;
  if (as_endpoint(op)->opened) shm::doorbell::drain(as_endpoint(op)->bell);
  Py_RETURN_NONE;
}

PyObject* fileno(PyObject* op, PyObject*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  return enter(self) ? PyLong_FromLong(self->bell) : nullptr;
}

PyObject* arm(PyObject* op, PyObject*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (!enter(self)) return nullptr;
  shm::doorbell::drain(self->bell);
  if (ready_now(self)) Py_RETURN_FALSE;
  ++self->count.parks;
  const bool answered = self->watch->announce();
  return PyBool_FromLong(!answered && !ready_now(self));
}

PyObject* horizon_us(PyObject* op, PyObject*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (refuse_unopened(self)) return nullptr;
  look_at_crowding(self);
  return PyFloat_FromDouble(self->horizon->horizon_us(to_us(ticks())));
}

// _monitor(completion, token, horizon_us)
PyObject* monitor(PyObject* op, PyObject* args) {
  const Guard guard;
  return translate([&]() -> py::object {
    Endpoint* self = as_endpoint(op);
    if (refuse_unopened(self)) throw py::error_already_set();
    const auto given = py::reinterpret_borrow<py::tuple>(args);
    const double us = given[2].cast<double>();
    const Ticks now = ticks();
    ++self->count.monitored;
    stop_monitoring(self);
    self->monitored = true;
    self->monitored_for = self->suspending;
    self->monitor_began_us = to_us(now);
    self->monitor_for_us = us;
    wait::Service::instance().submit(*self->watch, given[0].cast<std::shared_ptr<wait::Completion>>(),
                                     given[1].cast<wait::Token>(), us < 1e15 ? now + from_us(us) : ~Ticks{0});
    return py::none();
  });
}

PyObject* unmonitor(PyObject* op, PyObject*) {
  const Guard guard;
  stop_monitoring(as_endpoint(op));
  Py_RETURN_NONE;
}

PyObject* bell_callback(PyObject* op, PyObject*) { return new_bell_callback(as_endpoint(op)); }

PyObject* wake_parked_now(PyObject* op, PyObject*) {
  const Guard guard;
  const int woken = wake_parked(as_endpoint(op));
  return woken < 0 ? nullptr : PyBool_FromLong(woken);
}

PyObject* parked_operation(PyObject* op, void*) {
  const Guard guard;
  const void* found = as_endpoint(op)->parked_operation;
  return Py_NewRef(found == nullptr ? Py_None : static_cast<PyObject*>(const_cast<void*>(found)));
}

PyObject* parked_ns(PyObject* op, void*) {
  const Guard guard;
  const Endpoint* self = as_endpoint(op);
  return PyLong_FromUnsignedLongLong(self->parked_operation == nullptr ? 0 : self->parked_ns);
}

PyObject* home(PyObject* op, void*) {
  const Guard guard;
  const Endpoint* self = as_endpoint(op);
  Ref loop = self->home == nullptr ? Ref() : referent(self->home);
  return loop ? loop.give() : Py_NewRef(Py_None);
}

int set_home(PyObject* op, PyObject* loop, void*) {
  const Guard guard;
  PyObject* reference = loop == nullptr || loop == Py_None ? nullptr : PyWeakref_NewRef(loop, nullptr);
  if (reference == nullptr && PyErr_Occurred()) return -1;
  Endpoint* self = as_endpoint(op);
  Py_XSETREF(self->home, reference);
  if (self->opened && self->rank >= 0) self->home_peer = seat_of_writer(as_reader(self));
  return 0;
}

PyObject* forget_peer(PyObject* op, PyObject*) {
  as_endpoint(op)->peer_seat = 0;
  Py_RETURN_NONE;
}

PyObject* in_vain(PyObject* op, void*) { return PyBool_FromLong(as_endpoint(op)->in_vain); }
PyObject* queued(PyObject* op, void*) { return PyLong_FromLong(as_endpoint(op)->queued); }

PyObject* counters(PyObject* op, PyObject*) {
  const Guard guard;
  return translate([&]() -> py::object {
    const Endpoint* self = as_endpoint(op);
    py::dict found;
    found["ready"] = self->count.ready;
    found["inline"] = self->count.inlined;
    found["monitor"] = self->count.monitored;
    found["parks"] = self->count.parks;
    found["signals"] = self->count.signals;
    found["rings"] = self->count.rings;
    found["messages"] = self->count.messages;
    found["leases"] = self->rank < 0 ? as_writer(self)->claimed : as_reader(self)->leases;
    found["views"] = self->rank < 0 ? 0 : as_reader(self)->views;
    return found;
  });
}

PyObject* ring_all(PyObject* op, PyObject*) {
  const Guard guard;
  WriterObject* self = as_writer(as_endpoint(op));
  if (refuse_unopened(self)) return nullptr;
  count_rings(self, self->core->ring_all());
  Py_RETURN_NONE;
}

PyObject* drop(PyObject* op, PyObject* argument) {
  const Guard guard;
  WriterObject* self = as_writer(as_endpoint(op));
  if (refuse_unopened(self)) return nullptr;
  const long rank = PyLong_AsLong(argument);
  if (rank == -1 && PyErr_Occurred()) return nullptr;
  if (rank < 0 || rank >= static_cast<long>(self->core->segment().readers())) {
    PyErr_Format(PyExc_ValueError, "rank must be from 0 to %d, not %ld",
                 static_cast<int>(self->core->segment().readers()) - 1, rank);
    return nullptr;
  }
  self->core->drop(static_cast<std::uint32_t>(rank));
  Py_RETURN_NONE;
}

PyObject* opened(PyObject* op, void*) { return PyBool_FromLong(as_endpoint(op)->opened); }
PyObject* claimed(PyObject* op, void*) { return PyBool_FromLong(as_writer(as_endpoint(op))->claimed); }
PyObject* sequence(PyObject* op, void*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (refuse_unopened(self)) return nullptr;
  if (self->rank < 0) return PyLong_FromUnsignedLongLong(as_writer(self)->core->sequence());
  const auto expected = as_reader(self)->core->expected();
  return expected ? PyLong_FromUnsignedLongLong(*expected) : PyLong_FromLong(-1);
}
PyObject* cursor(PyObject* op, void*) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (refuse_unopened(self)) return nullptr;
  return PyLong_FromUnsignedLongLong(self->rank < 0 ? as_writer(self)->core->cursor() : as_reader(self)->core->cursor());
}

constexpr const char* kFilenoDoc =
    "The descriptor of this end's bell, for select(), trio, gevent: readable when there may be something to do.\n\n"
    "Call arm() before every sleep on it.";
constexpr const char* kArmDoc =
    "Ask to be rung, before sleeping on fileno().\n\n"
    "True: nothing to do yet, sleep. False: there is something to take, room to write, or an error to get, now.";

#define COMMON_METHODS                                                                         \
  {"_shut", shut, METH_O, nullptr}, {"_fail", fail, METH_O, nullptr},                          \
      {"_ready", ready, METH_NOARGS, nullptr}, {"_announce", announce, METH_NOARGS, nullptr},  \
      {"_drain", drain, METH_NOARGS, nullptr}, {"fileno", fileno, METH_NOARGS, kFilenoDoc},    \
      {"arm", arm, METH_NOARGS, kArmDoc}, {"_horizon_us", horizon_us, METH_NOARGS, nullptr},   \
      {"_monitor", monitor, METH_VARARGS, nullptr}, {"_unmonitor", unmonitor, METH_NOARGS, nullptr}, \
      {"_bell_callback", bell_callback, METH_NOARGS, nullptr},                                 \
      {"_wake_parked", wake_parked_now, METH_NOARGS, nullptr},                                 \
      {"_forget_peer", forget_peer, METH_NOARGS, nullptr},                                     \
      {"_counters", counters, METH_NOARGS, nullptr}

PyMethodDef reader_methods[] = {
    COMMON_METHODS, {"_open", open_reader, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyMethodDef writer_methods[] = {COMMON_METHODS,
                                {"_open", open_writer, METH_VARARGS, nullptr},
                                {"_ring_all", ring_all, METH_NOARGS, nullptr},
                                {"_drop", drop, METH_O, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
#undef COMMON_METHODS

#define COMMON_PROPERTIES                                                                             \
  {"_opened", opened, nullptr, nullptr, nullptr}, {"_cursor", cursor, nullptr, nullptr, nullptr},     \
      {"_sequence", sequence, nullptr, nullptr, nullptr},                                             \
      {"_home", home, set_home, nullptr, nullptr}, {"_in_vain", in_vain, nullptr, nullptr, nullptr},  \
      {"_queued", queued, nullptr, nullptr, nullptr}, {"_parked_ns", parked_ns, nullptr, nullptr, nullptr}, \
      { "_parked_operation", parked_operation, nullptr, nullptr, nullptr }

PyGetSetDef reader_properties[] = {COMMON_PROPERTIES, {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef writer_properties[] = {COMMON_PROPERTIES,
                                   {"_claimed", claimed, nullptr, nullptr, nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};
#undef COMMON_PROPERTIES

// --- the types

template <typename T>
PyObject* make_endpoint(PyTypeObject* type, PyObject*, PyObject*) {
  // tp_alloc zeroes the object, and zero is the state of an endpoint that was never opened.
  auto* self = reinterpret_cast<T*>(type->tp_alloc(type, 0));
  if (self != nullptr) self->rank = -1;
  return reinterpret_cast<PyObject*>(self);
}

void dealloc_endpoint(PyObject* op) {
  const Guard guard;
  Endpoint* self = as_endpoint(op);
  if (PyObject_CallFinalizerFromDealloc(op) < 0) return;
  PyObject_GC_UnTrack(op);
  if (self->opened) {
    self->shut = true;
    retire(self);
  }
  endpoint_clear(self);
  Py_CLEAR(self->horizon_object);
  PyTypeObject* type = Py_TYPE(op);
  type->tp_free(op);
  Py_DECREF(type);
}

int traverse_endpoint(PyObject* op, visitproc visit, void* arg) {
  return endpoint_traverse(as_endpoint(op), visit, arg);
}

int clear_endpoint(PyObject* op) {
  endpoint_clear(as_endpoint(op));
  return 0;
}

}  // namespace

PyMethodDef* reader_hot_methods();
PyMethodDef* writer_hot_methods();

namespace {

// A type takes one table of methods; the hot and the cold ones live in two files.
PyMethodDef* joined(const PyMethodDef* hot, const PyMethodDef* cold) {
  auto* all = new std::vector<PyMethodDef>;  // as long-lived as the type
  for (; hot->ml_name != nullptr; ++hot) all->push_back(*hot);
  for (; cold->ml_name != nullptr; ++cold) all->push_back(*cold);
  all->push_back(*cold);
  return all->data();
}

PyTypeObject* make_type(PyObject* module, const char* name, int size, newfunc make, PyMethodDef* methods,
                        PyGetSetDef* properties) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(make)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_endpoint)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_endpoint)},
      {Py_tp_clear, reinterpret_cast<void*>(clear_endpoint)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {0, nullptr},
  };
  PyType_Spec spec = {name, size, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

}  // namespace

bool make_endpoint_types(PyObject* module) {
  types.reader = make_type(module, "aiospin._native.Reader", sizeof(ReaderObject), make_endpoint<ReaderObject>,
                           joined(reader_hot_methods(), reader_methods), reader_properties);
  types.writer = make_type(module, "aiospin._native.Writer", sizeof(WriterObject), make_endpoint<WriterObject>,
                           joined(writer_hot_methods(), writer_methods), writer_properties);
  return types.reader != nullptr && types.writer != nullptr && PyModule_AddType(module, types.reader) == 0 &&
         PyModule_AddType(module, types.writer) == 0;
}

}  // namespace aiospin::bindings
