// WriteSlot: a claim, from the room in the ring until it is published or aborted.
#include <cstdlib>
#include <memory>
#include <new>

#include "bindings/operation.h"
#include "bindings/slots.h"

namespace aiospin::bindings {

namespace {

struct WriteSlotObject {
  PyObject_HEAD;
  WriterObject* writer;
  std::byte* bytes;
  std::uint64_t size;  // bytes to publish
  bool is_private;     // larger than the ring: malloc'd, sent in fragments, freed with this object
  bool ended;          // published or aborted
  // Views hold this object. They may outlive the claim, the writer and the queue, and then show stale bytes or another
  // message's, but never memory that is gone.
  std::shared_ptr<shm::Segment> segment;
};

WriteSlotObject* as_slot(PyObject* self) { return reinterpret_cast<WriteSlotObject*>(self); }
PyObject* as_object(void* object) { return static_cast<PyObject*>(object); }

bool refuse_ended(const WriteSlotObject* slot) {
  if (!slot->ended) return false;
  PyErr_SetString(PyExc_ValueError, "the slot was published or aborted: its bytes are no longer yours");
  return true;
}

int slot_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  const Guard guard;
  const WriteSlotObject* slot = as_slot(self);
  if (refuse_ended(slot)) {
    view->obj = nullptr;
    return -1;
  }
  return PyBuffer_FillInfo(view, self, slot->bytes, static_cast<Py_ssize_t>(slot->size), 0, flags);
}

// NumPy holds on to a view, instead of to the object alone, only where the type has this function.
void slot_releasebuffer(PyObject*, Py_buffer*) {}

PyObject* slot_data(PyObject* self, void*) {
  const Guard guard;
  return refuse_ended(as_slot(self)) ? nullptr : PyMemoryView_FromObject(self);
}

PyObject* slot_size(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_slot(self)->size); }
Py_ssize_t slot_length(PyObject* self) { return static_cast<Py_ssize_t>(as_slot(self)->size); }

PyObject* slot_truncate(PyObject* self, PyObject* argument) {
  const Guard guard;
  WriteSlotObject* slot = as_slot(self);
  if (refuse_ended(slot)) return nullptr;
  const Py_ssize_t size = PyNumber_AsSsize_t(argument, PyExc_OverflowError);
  if (size == -1 && PyErr_Occurred()) return nullptr;
  if (size < 0 || static_cast<std::uint64_t>(size) > slot->size) {
    PyErr_Format(PyExc_ValueError, "a slot of %llu bytes cannot be truncated to %zd",
                 static_cast<unsigned long long>(slot->size), size);
    return nullptr;
  }
  slot->size = static_cast<std::uint64_t>(size);
  Py_RETURN_NONE;
}

void end(WriteSlotObject* slot) {
  slot->ended = true;
  end_claim(slot->writer);
}

void end_by_abort(WriteSlotObject* slot) {
  if (!slot->ended) end(slot);
}

// False when the writer cannot publish any more (closed, shut down, or forked), with the exception set; the claim is
// over then too.
bool usable(WriteSlotObject* slot) {
  WriterObject* writer = slot->writer;
  const bool ours = !writer->shut && is_ours(writer);
  if (ours && !writer->core->ended()) return true;
  end_by_abort(slot);
  if (ours) PyErr_SetString(classes.queue_closed, "the writer: the queue was shut down");
  return ours ? false : enter(writer);
}

bool publish(WriteSlotObject* slot) {
  if (refuse_ended(slot) || !usable(slot)) return false;
  WriterObject* writer = slot->writer;
  if (!slot->is_private) {
    writer->core->commit(slot->size, 0, slot->size, writer->checksum);
    count_rings(writer, writer->core->flush());
    ++writer->count.messages;
    end(slot);
    return true;
  }
  Gather message;
  message.adopt(slot->bytes, slot->size, as_object(slot));
  end(slot);
  return put_and_wait(writer, message, Deadline{});
}

PyObject* slot_publish(PyObject* self, PyObject*) {
  const Guard guard;
  if (!publish(as_slot(self))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* slot_abort(PyObject* self, PyObject*) {
  const Guard guard;
  end_by_abort(as_slot(self));
  Py_RETURN_NONE;
}

PyObject* slot_enter(PyObject* self, PyObject*) {
  const Guard guard;
  if (refuse_ended(as_slot(self))) return nullptr;
  return Py_NewRef(self);
}

PyObject* slot_exit(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  const Guard guard;
  if (nargs > 0 && args[0] != Py_None) {
    end_by_abort(as_slot(self));
  } else if (!as_slot(self)->ended && !publish(as_slot(self))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* slot_repr(PyObject* self) {
  const Guard guard;
  return PyUnicode_FromFormat("<WriteSlot: %llu bytes%s>", static_cast<unsigned long long>(as_slot(self)->size),
                              as_slot(self)->ended ? ", ended" : "");
}

int slot_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_object(as_slot(self)->writer));
  return 0;
}

void slot_finalize(PyObject* self) {
  const Guard guard;
  WriteSlotObject* slot = as_slot(self);
  if (slot->ended) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  end_by_abort(slot);
  if (PyErr_ResourceWarning(self, 1, "a write slot of %llu bytes was neither published nor aborted; it is aborted",
                            static_cast<unsigned long long>(slot->size)) < 0) {
    PyErr_WriteUnraisable(self);
  }
  PyErr_Restore(type, value, traceback);
}

void slot_dealloc(PyObject* self) {
  const Guard guard;
  WriteSlotObject* slot = as_slot(self);
  if (!slot->ended && PyObject_CallFinalizerFromDealloc(self) < 0) return;
  PyObject_GC_UnTrack(self);
  if (slot->is_private) std::free(slot->bytes);
  std::destroy_at(&slot->segment);
  Py_DECREF(as_object(slot->writer));
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef slot_methods[] = {
    {"truncate", slot_truncate, METH_O, "Shrink the slot to its first n bytes before it is published."},
    {"publish", slot_publish, METH_NOARGS,
     "Make the slot visible to every reader. Waits only for a message larger than the ring."},
    {"abort", slot_abort, METH_NOARGS, "Drop the slot; nothing of it is ever seen. Twice is fine."},
    {"__enter__", slot_enter, METH_NOARGS, "The slot itself; leaving ends it."},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(slot_exit)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef slot_properties[] = {
    {"data", slot_data, nullptr, "A writable memoryview of the slot. Not to be written to after publish().", nullptr},
    {"size", slot_size, nullptr, "Bytes that will be published.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slot_slots[] = {
    {Py_tp_doc, const_cast<char*>("Room for one message, in place in the ring: the writer's claim.")},
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
PyType_Spec slot_spec = {"aiospin._native.WriteSlot", sizeof(WriteSlotObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slot_slots};

}  // namespace

PyObject* new_write_slot(WriterObject* writer, std::byte* bytes, std::uint64_t size, bool is_private) {
  WriteSlotObject* self = PyObject_GC_New(WriteSlotObject, types.write_slot);
  if (self == nullptr) return nullptr;
  Py_INCREF(as_object(writer));
  self->writer = writer;
  self->bytes = bytes;
  self->size = size;
  self->is_private = is_private;
  self->ended = false;
  new (&self->segment) std::shared_ptr<shm::Segment>(writer->core->shared_segment());
  PyObject_GC_Track(as_object(self));
  return as_object(self);
}

bool publish_write_slot(PyObject* slot) { return as_slot(slot)->ended || publish(as_slot(slot)); }

void abort_write_slot(PyObject* slot) { end_by_abort(as_slot(slot)); }

PyObject* publish_write_slot_async(PyObject* object) {
  WriteSlotObject* slot = as_slot(object);
  if (slot->ended || !slot->is_private) {
    publish_write_slot(object);
    return nullptr;
  }
  if (!usable(slot)) return nullptr;
  PyObject* operation = new_operation(types.operation, Kind::put, slot->writer, Deadline{});
  if (operation == nullptr) return nullptr;
  as_operation(operation)->message = new Gather;
  as_operation(operation)->message->adopt(slot->bytes, slot->size, object);
  end(slot);
  return operation;
}

bool make_write_slot_types(PyObject* module) {
  types.write_slot = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &slot_spec, nullptr));
  return types.write_slot != nullptr && PyModule_AddType(module, types.write_slot) == 0;
}

bool make_slot_types(PyObject* module) {
  return make_read_slot_types(module) && make_write_slot_types(module);
}

}  // namespace aiospin::bindings
