// ReadSlot and Lease: who owns the bytes of a message, and when they go back to the ring.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bindings/slots.h"
#include "shm/layout.h"

namespace aiospin::bindings {

namespace {

// One lease on a slot's bytes. Every view holds it; the bytes go back when it dies.
struct LeaseObject {
  PyObject_HEAD;
  ReaderObject* reader;
  queue::Slot slot;
  Py_ssize_t exports;
  bool outlives;  // its slot was left, and views keep it
};

struct ReadSlotObject {
  PyObject_HEAD;
  ReaderObject* reader;
  LeaseObject* lease;  // made by the first view
  queue::Slot slot;
  bool left;           // released, or its `with` is over
};

ReadSlotObject* as_slot(PyObject* self) { return reinterpret_cast<ReadSlotObject*>(self); }
LeaseObject* as_lease(PyObject* self) { return reinterpret_cast<LeaseObject*>(self); }
PyObject* as_object(void* object) { return static_cast<PyObject*>(object); }

// --- Lease

int lease_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  const Guard guard;
  LeaseObject* lease = as_lease(self);
  if (PyBuffer_FillInfo(view, self, const_cast<std::byte*>(lease->slot.bytes),
                        static_cast<Py_ssize_t>(lease->slot.size), 1, flags) < 0) {
    return -1;
  }
  ++lease->exports;
  return 0;
}

void lease_releasebuffer(PyObject* self, Py_buffer*) {
  const Guard guard;
  --as_lease(self)->exports;
}

int lease_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_object(as_lease(self)->reader));
  return 0;
}

void lease_dealloc(PyObject* self) {
  const Guard guard;
  LeaseObject* lease = as_lease(self);
  PyObject_GC_UnTrack(self);
  if (lease->outlives) --lease->reader->views;
  release(lease->reader, lease->slot);
  Py_DECREF(as_object(lease->reader));
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot lease_slots[] = {
    {Py_tp_doc, const_cast<char*>("The bytes of one slot, given back when the last view of them dies.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(lease_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(lease_traverse)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(lease_getbuffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(lease_releasebuffer)},
    {0, nullptr},
};
PyType_Spec lease_spec = {"aiospin._native.Lease", sizeof(LeaseObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, lease_slots};

// --- Kept

// A message that has become its reader's own: malloc'd bytes, freed with the last view.
struct KeptObject {
  PyObject_HEAD;
  std::byte* bytes;
  std::uint64_t size;
};

KeptObject* as_kept(PyObject* self) { return reinterpret_cast<KeptObject*>(self); }

int kept_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  return PyBuffer_FillInfo(view, self, as_kept(self)->bytes, static_cast<Py_ssize_t>(as_kept(self)->size), 0, flags);
}

void kept_dealloc(PyObject* self) {
  std::free(as_kept(self)->bytes);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot kept_slots[] = {
    {Py_tp_doc, const_cast<char*>("The bytes of one message, kept by its reader after the slot went back.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(kept_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(kept_getbuffer)},
    {0, nullptr},
};
PyType_Spec kept_spec = {"aiospin._native.Kept", sizeof(KeptObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kept_slots};

// --- ReadSlot

bool refuse_left(const ReadSlotObject* slot) {
  if (!slot->left) return false;
  PyErr_SetString(PyExc_ValueError, "the slot is released: its bytes may be another message's by now");
  return true;
}

// From the first view on, the lease owns the bytes.
LeaseObject* lease_of(ReadSlotObject* slot) {
  if (slot->lease == nullptr) {
    LeaseObject* lease = PyObject_GC_New(LeaseObject, types.lease);
    if (lease == nullptr) return nullptr;
    Py_INCREF(as_object(slot->reader));
    lease->reader = slot->reader;
    lease->slot = slot->slot;
    lease->exports = 0;
    lease->outlives = false;
    slot->lease = lease;
    PyObject_GC_Track(as_object(lease));
  }
  return slot->lease;
}

void leave(ReadSlotObject* slot) {
  if (slot->left) return;
  slot->left = true;
  if (slot->lease != nullptr) {
    LeaseObject* lease = std::exchange(slot->lease, nullptr);
    lease->outlives = true;  // not for long, if nobody looks at it
    ++lease->reader->views;
    Py_DECREF(as_object(lease));
  } else {
    release(slot->reader, slot->slot);
  }
}

int slot_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  const Guard guard;
  ReadSlotObject* slot = as_slot(self);
  LeaseObject* lease = refuse_left(slot) ? nullptr : lease_of(slot);
  if (lease == nullptr) {
    view->obj = nullptr;
    return -1;
  }
  return PyObject_GetBuffer(as_object(lease), view, flags);
}

// Never called, since views belong to the lease. NumPy holds on to a view, instead of to the object alone, only where
// the type has this function.
void slot_releasebuffer(PyObject*, Py_buffer*) {}

PyObject* slot_data(PyObject* self, void*) {
  const Guard guard;
  ReadSlotObject* slot = as_slot(self);
  LeaseObject* lease = refuse_left(slot) ? nullptr : lease_of(slot);
  return lease == nullptr ? nullptr : PyMemoryView_FromObject(as_object(lease));
}

PyObject* slot_size(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_slot(self)->slot.size); }
PyObject* slot_sequence(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_slot(self)->slot.sequence); }
PyObject* slot_redelivered(PyObject* self, void*) { return PyBool_FromLong(as_slot(self)->slot.redelivered); }
PyObject* slot_released(PyObject* self, void*) { return PyBool_FromLong(as_slot(self)->left); }
Py_ssize_t slot_length(PyObject* self) { return static_cast<Py_ssize_t>(as_slot(self)->slot.size); }

PyObject* slot_position(PyObject* self, void*) {
  const queue::Slot& slot = as_slot(self)->slot;
  if (slot.owned != nullptr) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong(slot.begin + shm::kSlotHeader);
}

bool refuse_viewed(const ReadSlotObject* slot) {
  const LeaseObject* lease = slot->lease;
  if (slot->left || lease == nullptr || (lease->exports == 0 && Py_REFCNT(lease) == 1)) return false;
  PyErr_Format(PyExc_BufferError, "slot %llu has live views; it is released when the last of them is gone",
               static_cast<unsigned long long>(slot->slot.sequence));
  return true;
}

PyObject* slot_release(PyObject* self, PyObject*) {
  const Guard guard;
  if (refuse_viewed(as_slot(self))) return nullptr;
  leave(as_slot(self));
  Py_RETURN_NONE;
}

PyObject* slot_keep(PyObject* self, PyObject*) {
  const Guard guard;
  ReadSlotObject* slot = as_slot(self);
  if (refuse_left(slot) || refuse_viewed(slot)) return nullptr;
  const std::uint64_t size = slot->slot.size;
  std::byte* bytes = slot->slot.owned;
  if (bytes == nullptr) {
    bytes = static_cast<std::byte*>(std::malloc(std::max<std::uint64_t>(size, 1)));
    if (bytes == nullptr) return PyErr_NoMemory();
  }
  KeptObject* kept = PyObject_New(KeptObject, types.kept);
  if (kept == nullptr) {
    if (slot->slot.owned == nullptr) std::free(bytes);
    return nullptr;
  }
  kept->bytes = bytes;
  kept->size = size;
  if (slot->slot.owned == nullptr) {
    std::memcpy(bytes, slot->slot.bytes, size);
  } else {
    slot->slot.owned = nullptr;
    if (slot->lease != nullptr) slot->lease->slot.owned = nullptr;
  }
  leave(slot);
  PyObject* view = PyMemoryView_FromObject(as_object(kept));
  Py_DECREF(as_object(kept));
  return view;
}

PyObject* slot_enter(PyObject* self, PyObject*) {
  const Guard guard;
  if (refuse_left(as_slot(self))) return nullptr;
  return Py_NewRef(self);
}

PyObject* slot_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
  const Guard guard;
  leave(as_slot(self));
  Py_RETURN_NONE;
}

PyObject* slot_repr(PyObject* self) {
  const Guard guard;
  const ReadSlotObject* slot = as_slot(self);
  return PyUnicode_FromFormat("<ReadSlot %llu of reader %d: %llu bytes%s%s>",
                              static_cast<unsigned long long>(slot->slot.sequence), slot->reader->rank,
                              static_cast<unsigned long long>(slot->slot.size),
                              slot->slot.redelivered ? ", redelivered" : "", slot->left ? ", released" : "");
}

int slot_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_object(as_slot(self)->reader));
  Py_VISIT(as_object(as_slot(self)->lease));
  return 0;
}

// Untouched, as a cancelled gather() leaves it: back to the reader. Looked at and forgotten: released, with a warning.
// Views that are still alive keep the bytes, and nothing is wrong.
void slot_finalize(PyObject* self) {
  const Guard guard;
  ReadSlotObject* slot = as_slot(self);
  if (slot->left) return;
  if (slot->lease == nullptr) {
    slot->left = true;
    give_back(slot->reader, slot->slot);
    return;
  }
  const bool viewed = slot->lease->exports > 0 || Py_REFCNT(slot->lease) > 1;
  leave(slot);
  if (viewed) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (PyErr_ResourceWarning(self, 1, "slot %llu of reader %d was read and never released",
                            static_cast<unsigned long long>(slot->slot.sequence), slot->reader->rank) < 0) {
    PyErr_WriteUnraisable(self);
  }
  PyErr_Restore(type, value, traceback);
}

void slot_dealloc(PyObject* self) {
  const Guard guard;
  if (!as_slot(self)->left && PyObject_CallFinalizerFromDealloc(self) < 0) return;
  PyObject_GC_UnTrack(self);
  Py_XDECREF(as_object(as_slot(self)->lease));
  Py_DECREF(as_object(as_slot(self)->reader));
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef slot_methods[] = {
    {"release", slot_release, METH_NOARGS, "Give the bytes back. BufferError while views of them live; twice is fine."},
    {"keep", slot_keep, METH_NOARGS, "The bytes as writable memory of the caller's own; the slot goes back. BufferError while views live."},
    {"__enter__", slot_enter, METH_NOARGS, "The slot itself; leaving ends it."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(slot_exit)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef slot_properties[] = {
    {"data", slot_data, nullptr, "A read-only memoryview of the bytes in place. It keeps them from being reused. ValueError once released.", nullptr},
    {"size", slot_size, nullptr, "Bytes of the message.", nullptr},
    {"sequence", slot_sequence, nullptr, "Number of the message in its queue, from 0, without gaps.", nullptr},
    {"redelivered", slot_redelivered, nullptr, "Whether a reader that held this rank before may have seen it.", nullptr},
    {"released", slot_released, nullptr, "Whether the slot was given back, by release() or the end of its `with`.", nullptr},
    {"_position", slot_position, nullptr, "Where its payload begins in the stream of bytes; None if it is not in the ring.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slot_slots[] = {
    {Py_tp_doc, const_cast<char*>("One message, in place in the ring: a lease on its bytes.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(slot_dealloc)},
    {Py_tp_finalize, reinterpret_cast<void*>(slot_finalize)},
    {Py_tp_traverse, reinterpret_cast<void*>(slot_traverse)},
    {Py_tp_methods, slot_methods},
    {Py_tp_getset, slot_properties},
    {Py_tp_repr, reinterpret_cast<void*>(slot_repr)},
    {Py_sq_length, reinterpret_cast<void*>(slot_length)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(slot_getbuffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(slot_releasebuffer)},
    {0, nullptr},
};
PyType_Spec slot_spec = {"aiospin._native.ReadSlot", sizeof(ReadSlotObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slot_slots};

}  // namespace

PyObject* new_read_slot(ReaderObject* reader, const queue::Slot& slot) {
  ReadSlotObject* self = PyObject_GC_New(ReadSlotObject, types.read_slot);
  if (self == nullptr) return nullptr;
  Py_INCREF(as_object(reader));
  self->reader = reader;
  self->lease = nullptr;
  self->slot = slot;
  self->left = false;
  PyObject_GC_Track(as_object(self));
  return as_object(self);
}

void leave_read_slot(PyObject* slot) { leave(as_slot(slot)); }

bool make_read_slot_types(PyObject* module) {
  types.lease = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &lease_spec, nullptr));
  types.kept = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &kept_spec, nullptr));
  types.read_slot = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &slot_spec, nullptr));
  return types.lease != nullptr && types.kept != nullptr && types.read_slot != nullptr &&
         PyModule_AddType(module, types.read_slot) == 0;
}

}  // namespace aiospin::bindings
