// Operation: the coroutine protocol around an attempt.
#include "bindings/operation.h"

#include <new>

#include "bindings/parking.h"
#include "bindings/reader.h"
#include "bindings/slots.h"
#include "bindings/writer.h"

namespace aiospin::bindings {

const char* wanted(const OperationObject* self) {
  if (reads(self)) return "message";
  return as_writer(self->endpoint)->claimed ? "turn, since a claim is outstanding," : "room";
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::acquire_read:
      return "acquire_read";
    case Kind::get:
      return "aget";
    case Kind::get_many:
      return "aget_many";
    case Kind::acquire_write:
      return "acquire_write";
    case Kind::put:
      return "aput";
    case Kind::put_many:
      return "aput_many";
  }
  return "?";
}

Attempt attempt(OperationObject* self, PyObject** result) {
  switch (self->kind) {
    case Kind::acquire_read:
      return attempt_slot(as_reader(self->endpoint), result);
    case Kind::get:
      return attempt_get(as_reader(self->endpoint), result);
    case Kind::get_many:
      return attempt_get_many(as_reader(self->endpoint), self->count, result);
    case Kind::acquire_write:
      return attempt_claim(as_writer(self->endpoint), static_cast<std::uint64_t>(self->count), result);
    case Kind::put: {
      const Attempt outcome = attempt_put(as_writer(self->endpoint), *self->message, self->progress);
      if (outcome == Attempt::done) *result = Py_NewRef(Py_None);
      return outcome;
    }
    case Kind::put_many: {
      const Attempt outcome =
          attempt_put_many(as_writer(self->endpoint), self->payloads, self->count, self->progress);
      if (outcome == Attempt::done) *result = Py_NewRef(Py_None);
      return outcome;
    }
  }
  return Attempt::failed;
}

namespace {

PyObject* object(OperationObject* self) { return reinterpret_cast<PyObject*>(self); }
PyObject* endpoint_object(const OperationObject* self) { return reinterpret_cast<PyObject*>(self->endpoint); }

void start_waiting(OperationObject* self) {
  if (self->waits) return;
  self->waits = true;
  ++self->endpoint->queued;
}

void resume(OperationObject* self) {
  if (self->endpoint->monitored_for == self) stop_monitoring(self->endpoint);
  leave_parking(self);
  Py_CLEAR(self->waiter);
  if (self->turn != nullptr) {
    --self->turn->waiting;
    self->turn = nullptr;
  }
}

// The operation ends, with a result or an exception, which is kept. Whoever waits behind it goes on.
void finish(OperationObject* self) {
  self->stage = Stage::finished;
  if (!self->waits) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  resume(self);
  self->waits = false;
  --self->endpoint->queued;
  pass_turn(self->endpoint);
  Ref told;
  if (self->left) {
    told = Ref(PyObject_CallMethodOneArg(endpoint_object(self), names.leave, object(self)));
  } else if (self->endpoint->queued != 0) {
    told = Ref(call_hook(endpoint_object(self), names.kick));
  } else {
    told = Ref::to(Py_None);
  }
  if (!told) PyErr_WriteUnraisable(endpoint_object(self));
  PyErr_Restore(type, value, traceback);
}

// Must it stand in line behind others before it may try?
int must_queue(OperationObject* self) {
  Endpoint* endpoint = self->endpoint;
  if (!reads(self)) {
    if (!self->waits && endpoint->queued != 0) return 1;
    const WriterObject* writer = as_writer(endpoint);
    return !writer->shut && (writer->claimed || (writer->threadsafe && writer->busy));
  }
  if (self->waits || endpoint->queued == 0) return 0;
  raise_busy(endpoint);
  return -1;
}

// The future that the Python half makes, which puts the bell into the loop, hands the wait to the waiter thread, ...
PyObject* suspend_in_python(OperationObject* self, bool in_vain) {
  const Ref remaining = self->deadline.limited() ? Ref(PyFloat_FromDouble(self->deadline.remaining_s(ticks())))
                                                 : Ref::to(Py_None);
  if (!remaining) return nullptr;
  self->left = true;
  self->endpoint->suspending = self;
  self->endpoint->in_vain = in_vain;
  PyObject* const arguments[] = {endpoint_object(self), object(self), remaining.get()};
  return PyObject_VectorcallMethod(names.suspend, arguments, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

// Sleeps on a future, and hands it to the task. PYGEN_RETURN: no need to, attempt again. `in_vain`: it was woken before
// and found nothing.
PySendResult suspend(OperationObject* self, bool in_vain, PyObject** result) {
  start_waiting(self);
  Ref future;
  if (self->endpoint->shut) {  // closed by another thread during a wait in place: the next attempt says so
    *result = Py_NewRef(Py_None);
    return PYGEN_RETURN;
  }
  switch (in_vain ? Parking::elsewhere : park_here(self, future)) {
    case Parking::failed:
      return PYGEN_ERROR;
    case Parking::ready:
      *result = Py_NewRef(Py_None);
      return PYGEN_RETURN;
    case Parking::parked:
      break;
    case Parking::elsewhere:
      future = Ref(suspend_in_python(self, in_vain));
      break;
  }
  if (!future) return PYGEN_ERROR;
  self->waiter = PyObject_CallMethodNoArgs(future.get(), names.await);
  if (self->waiter == nullptr) return PYGEN_ERROR;
  self->turn = this_turn();
  ++self->turn->waiting;
  self->asks = self->turn->asks;
  self->stage = Stage::suspended;
  return PyIter_Send(self->waiter, Py_None, result);
}

PyObject* inline_hook = nullptr;  // for tests

// In place, where it is due and nobody else is kept waiting by it. -1 with an exception set.
int wait_here(OperationObject* self, const Turn& turn) {
  Endpoint* endpoint = self->endpoint;
  look_at_crowding(endpoint);
  if (turn.waiting > 1 || !endpoint->horizon->due()) return 0;
  if (inline_hook != nullptr && !Ref(PyObject_CallFunction(inline_hook, "sO", "inline", object(self)))) return -1;
  if (!endpoint->opened) return 1;  // closed by the hook
  const Ticks now = ticks();
  if (!wait_inline(endpoint, self->deadline.earlier(now + from_us(endpoint->horizon->inline_us(just_rang(monotonic_ns())))))) return 0;
  ++endpoint->count.inlined;
  return 1;
}

PySendResult ended(OperationObject* self, PyObject** result, Attempt outcome) {
  if (outcome == Attempt::done && self->began_ns != 0 && self->endpoint->opened) learn(self->endpoint, self->began_ns);
  if (outcome == Attempt::done && self->began_ns == 0) ++self->endpoint->count.ready;
  if (outcome == Attempt::done && Py_IS_TYPE(object(self), types.acquire)) self->slot = Py_NewRef(*result);
  finish(self);
  return outcome == Attempt::done ? PYGEN_RETURN : PYGEN_ERROR;
}

}  // namespace

PySendResult step(PyObject* op, PyObject* value, PyObject** result) {
  const Guard guard;
  OperationObject* self = as_operation(op);
  *result = nullptr;
  Turn& turn = *this_turn();
  bool in_vain = self->stage == Stage::suspended;
  switch (self->stage) {
    case Stage::finished:
      PyErr_Format(PyExc_RuntimeError, "cannot reuse a finished %s()", kind_name(self->kind));
      return PYGEN_ERROR;
    case Stage::suspended: {
      const PySendResult sent = PyIter_Send(self->waiter, value, result);
      if (sent == PYGEN_NEXT) return sent;
      const Ref woken(std::exchange(*result, nullptr));
      resume(self);
      if (sent == PYGEN_ERROR) return ended(self, result, Attempt::failed);
      if (woken.get() == Py_False) {
        raise_timeout(self->endpoint, self->deadline, wanted(self));
        return ended(self, result, Attempt::failed);
      }
      if (!begin_turn(turn, self->asks)) return ended(self, result, Attempt::failed);
      break;
    }
    case Stage::yielded:
      if (!begin_turn(turn, self->asks)) return ended(self, result, Attempt::failed);
      break;
    case Stage::created: {
      if (is_inherited(self->endpoint) && !enter_slowly(self->endpoint)) return ended(self, result, Attempt::failed);
      self->deadline.start(ticks());
      const int owes = owes_turn(turn);
      if (owes < 0) return ended(self, result, Attempt::failed);
      if (owes > 0) {
        if (reads(self) && self->endpoint->queued != 0) {
          raise_busy(self->endpoint);
          return ended(self, result, Attempt::failed);
        }
        if (reads(self)) start_waiting(self);
        self->asks = turn.asks;
        self->stage = Stage::yielded;
        *result = Py_NewRef(Py_None);
        return PYGEN_NEXT;
      }
      break;
    }
  }
  for (;;) {
    const int queue = must_queue(self);
    if (queue < 0) return ended(self, result, Attempt::failed);
    if (queue == 0) {
      Attempt outcome = attempt(self, result);
      if (outcome == Attempt::not_ready && !self->deadline.polls()) {
        if (self->began_ns == 0) self->began_ns = monotonic_ns();
        const int waited = wait_here(self, turn);
        if (waited != 0) outcome = waited < 0 ? Attempt::failed : attempt(self, result);
      }
      if (outcome != Attempt::not_ready) return ended(self, result, outcome);
    }
    if (self->deadline.polls()) {
      raise_timeout(self->endpoint, self->deadline, wanted(self));
      return ended(self, result, Attempt::failed);
    }
    const PySendResult sent = suspend(self, in_vain, result);
    if (sent == PYGEN_NEXT) return sent;
    if (sent == PYGEN_ERROR) return ended(self, result, Attempt::failed);
    // What it waits for came while it announced the wait: no need to sleep.
    Py_CLEAR(*result);
    resume(self);
    in_vain = true;
  }
}

namespace {

// --- the coroutine protocol

PyObject* to_iterator_result(PySendResult sent, PyObject* result) {
  if (sent != PYGEN_RETURN) return result;
  const Ref value(result);
  const Ref stop(PyObject_CallOneArg(PyExc_StopIteration, result));
  if (stop) PyErr_SetObject(PyExc_StopIteration, stop.get());
  return nullptr;
}

}  // namespace

PyObject* operation_next(PyObject* self) {
  const Guard guard;
  PyObject* result;
  const PySendResult sent = step(self, Py_None, &result);
  return to_iterator_result(sent, result);
}

namespace {

PyObject* operation_send(PyObject* self, PyObject* value) {
  const Guard guard;
  PyObject* result;
  const PySendResult sent = step(self, value, &result);
  return to_iterator_result(sent, result);
}

PyObject* operation_throw(PyObject* op, PyObject* const* args, Py_ssize_t nargs) {
  const Guard guard;
  if (nargs < 1 || nargs > 3) {
    PyErr_Format(PyExc_TypeError, "throw() takes 1 to 3 arguments, not %zd", nargs);
    return nullptr;
  }
  OperationObject* self = as_operation(op);
  PyObject* type = args[0];
  PyObject* value = nargs > 1 && args[1] != Py_None ? args[1] : nullptr;
  PyObject* traceback = nargs > 2 && args[2] != Py_None ? args[2] : nullptr;
  if (PyExceptionInstance_Check(type)) {
    value = type;
    type = PyExceptionInstance_Class(type);
    if (traceback == nullptr) {
      const Ref own(PyException_GetTraceback(value));
      PyErr_Restore(Py_NewRef(type), Py_NewRef(value), Py_XNewRef(own.get()));
      finish(self);
      return nullptr;
    }
  } else if (!PyExceptionClass_Check(type)) {
    PyErr_Format(PyExc_TypeError, "exceptions must derive from BaseException, not %.100s", Py_TYPE(type)->tp_name);
    return nullptr;
  }
  PyErr_Restore(Py_NewRef(type), Py_XNewRef(value), Py_XNewRef(traceback));
  finish(self);
  return nullptr;
}

PyObject* operation_close(PyObject* self, PyObject*) {
  const Guard guard;
  if (as_operation(self)->stage != Stage::finished) finish(as_operation(self));
  Py_RETURN_NONE;
}

PyObject* operation_repr(PyObject* op) {
  const Guard guard;
  static constexpr const char* stages[] = {"created", "ready", "waiting", "finished"};
  const OperationObject* self = as_operation(op);
  const Ref role(role_name(self->endpoint));
  return role ? PyUnicode_FromFormat("<%s of %U, %s>", kind_name(self->kind), role.get(),
                                     stages[static_cast<int>(self->stage)])
              : nullptr;
}

PyObject* operation_name(PyObject* self, void*) { return PyUnicode_FromString(kind_name(as_operation(self)->kind)); }

}  // namespace

int operation_traverse(PyObject* op, visitproc visit, void* arg) {
  OperationObject* self = as_operation(op);
  Py_VISIT(Py_TYPE(op));
  Py_VISIT(endpoint_object(self));
  Py_VISIT(self->waiter);
  Py_VISIT(self->slot);
  Py_VISIT(self->payloads);
  return 0;
}

void operation_finalize(PyObject* op) {
  const Guard guard;
  OperationObject* self = as_operation(op);
  if (self->stage == Stage::finished) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (self->stage == Stage::created &&
      PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%s() was never awaited", kind_name(self->kind)) < 0) {
    PyErr_WriteUnraisable(op);
  }
  finish(self);
  PyErr_Restore(type, value, traceback);
}

void operation_dealloc(PyObject* op) {
  const Guard guard;
  OperationObject* self = as_operation(op);
  if (self->stage != Stage::finished && PyObject_CallFinalizerFromDealloc(op) < 0) return;
  PyObject_GC_UnTrack(op);
  Py_XDECREF(self->waiter);
  Py_XDECREF(self->slot);
  Py_XDECREF(self->payloads);
  delete self->message;
  std::destroy_at(&self->turn);
  Py_DECREF(endpoint_object(self));
  PyTypeObject* type = Py_TYPE(op);
  type->tp_free(op);
  Py_DECREF(type);
}

namespace {

PyMethodDef operation_methods[] = {
    {"send", operation_send, METH_O, nullptr},
    {"throw", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(operation_throw)), METH_FASTCALL, nullptr},
    {"close", operation_close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef operation_properties[] = {
    {"__name__", operation_name, nullptr, nullptr, nullptr},
    {"__qualname__", operation_name, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot operation_slots[] = {
    {Py_tp_doc, const_cast<char*>("One call of a reader or writer, to be awaited once. A coroutine in all but name.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(operation_dealloc)},
    {Py_tp_finalize, reinterpret_cast<void*>(operation_finalize)},
    {Py_tp_traverse, reinterpret_cast<void*>(operation_traverse)},
    {Py_tp_methods, operation_methods},
    {Py_tp_getset, operation_properties},
    {Py_tp_repr, reinterpret_cast<void*>(operation_repr)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(operation_next)},
    {Py_am_await, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_am_send, reinterpret_cast<void*>(step)},
    {0, nullptr},
};
PyType_Spec operation_spec = {
    "aiospin._native.Operation", sizeof(OperationObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, operation_slots};

}  // namespace

PyObject* new_operation(PyTypeObject* type, Kind kind, Endpoint* endpoint, const Deadline& deadline) {
  OperationObject* self = PyObject_GC_New(OperationObject, type);
  if (self == nullptr) return nullptr;
  Py_INCREF(reinterpret_cast<PyObject*>(endpoint));
  self->endpoint = endpoint;
  self->waiter = self->slot = self->payloads = nullptr;
  self->message = nullptr;
  self->count = 0;
  self->progress = 0;
  self->deadline = deadline;
  self->began_ns = 0;
  new (&self->turn) std::shared_ptr<Turn>();
  self->kind = kind;
  self->stage = Stage::created;
  self->waits = self->left = false;
  PyObject_GC_Track(object(self));
  return object(self);
}

bool hooked() { return inline_hook != nullptr; }

void set_inline_hook(PyObject* hook) { Py_XSETREF(inline_hook, hook == Py_None ? nullptr : Py_NewRef(hook)); }

bool make_operation_types(PyObject* module) {
  types.operation = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &operation_spec, nullptr));
  if (types.operation == nullptr) return false;
  return PyModule_AddType(module, types.operation) == 0;
}

}  // namespace aiospin::bindings
