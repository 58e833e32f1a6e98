// Acquire: `with` and `async with` around an operation that hands out a slot.
#include "bindings/operation.h"
#include "bindings/reader.h"
#include "bindings/slots.h"
#include "bindings/writer.h"

namespace aiospin::bindings {

namespace {

PyObject* acquire_enter(PyObject* op, PyObject*) {
  const Guard guard;
  OperationObject* self = as_operation(op);
  if (self->stage != Stage::created) {
    PyErr_Format(PyExc_RuntimeError, "cannot reuse a started %s()", kind_name(self->kind));
    return nullptr;
  }
  self->stage = Stage::finished;
  if (!reads(self) && !take_turn(as_writer(self->endpoint), self->deadline)) return nullptr;
  if (self->endpoint->queued != 0) {
    raise_busy(self->endpoint);
    return nullptr;
  }
  self->slot = drive(self->endpoint, self->deadline, wanted(self),
                     [self](PyObject** result) { return attempt(self, result); });
  return Py_XNewRef(self->slot);
}

PyObject* acquire_exit(PyObject* op, PyObject* const* args, Py_ssize_t nargs) {
  const Guard guard;
  OperationObject* self = as_operation(op);
  const Ref slot(std::exchange(self->slot, nullptr));
  if (!slot) Py_RETURN_NONE;
  if (reads(self)) {
    leave_read_slot(slot.get());
  } else if (nargs > 0 && args[0] != Py_None) {
    abort_write_slot(slot.get());
  } else if (!publish_write_slot(slot.get())) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* acquire_aenter(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* acquire_aexit(PyObject* op, PyObject* const* args, Py_ssize_t nargs) {
  const Guard guard;
  OperationObject* self = as_operation(op);
  if (!reads(self) && self->slot != nullptr && nargs > 0 && args[0] == Py_None) {
    const Ref slot(std::exchange(self->slot, nullptr));
    PyObject* sending = publish_write_slot_async(slot.get());
    if (sending != nullptr || PyErr_Occurred()) return sending;
  } else if (!Ref(acquire_exit(op, args, nargs))) {
    return nullptr;
  }
  return PyType_GenericAlloc(types.settled, 0);
}

// --- an awaitable that is done

PySendResult settled_send(PyObject*, PyObject*, PyObject** result) {
  *result = Py_NewRef(Py_None);
  return PYGEN_RETURN;
}
PyObject* settled_next(PyObject*) { return nullptr; }  // StopIteration(None)

void settled_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef acquire_methods[] = {
    {"__enter__", acquire_enter, METH_NOARGS, "Wait in this thread for the slot, and return it."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(acquire_exit)), METH_FASTCALL, nullptr},
    {"__aenter__", acquire_aenter, METH_NOARGS, "Await the slot."},
    {"__aexit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(acquire_aexit)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot acquire_slots[] = {
    {Py_tp_doc, const_cast<char*>("What acquire_read() and acquire_write() return: await it, or enter it with `with` or "
                                  "`async with`. Once.")},
    {Py_tp_methods, acquire_methods},
    {Py_tp_dealloc, reinterpret_cast<void*>(operation_dealloc)},
    {Py_tp_finalize, reinterpret_cast<void*>(operation_finalize)},
    {Py_tp_traverse, reinterpret_cast<void*>(operation_traverse)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(operation_next)},
    {Py_am_await, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_am_send, reinterpret_cast<void*>(step)},
    {0, nullptr},
};
PyType_Spec acquire_spec = {"aiospin._native.Acquire", sizeof(OperationObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            acquire_slots};

PyType_Slot settled_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(settled_dealloc)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(settled_next)},
    {Py_am_await, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_am_send, reinterpret_cast<void*>(settled_send)},
    {0, nullptr},
};
PyType_Spec settled_spec = {"aiospin._native.Settled", sizeof(PyObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, settled_slots};

}  // namespace

bool make_acquire_types(PyObject* module) {
  types.settled = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &settled_spec, nullptr));
  types.acquire = reinterpret_cast<PyTypeObject*>(
      PyType_FromModuleAndSpec(module, &acquire_spec, reinterpret_cast<PyObject*>(types.operation)));
  return types.settled != nullptr && types.acquire != nullptr && PyModule_AddType(module, types.acquire) == 0;
}

}  // namespace aiospin::bindings
