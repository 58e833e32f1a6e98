// Writer: attempts at sending messages, and the calls around them.
#include "bindings/writer.h"

#include <algorithm>
#include <cstdlib>

#include "bindings/operation.h"
#include "bindings/slots.h"

namespace aiospin::bindings {

namespace {

// Of put_many, published together: readers start on the first of them while the rest is being copied.
constexpr int kBatch = 32;

Attempt no_room(WriterObject* self, queue::Room room) {
  switch (room) {
    case queue::Room::ready:
      return Attempt::done;
    case queue::Room::full:
      return raise_failure(self) ? Attempt::failed : Attempt::not_ready;
    case queue::Room::closed:
      PyErr_SetString(classes.queue_closed, "the writer: the queue was shut down");
      return Attempt::failed;
    case queue::Room::corrupt:
      PyErr_Format(classes.corrupt_slot, "the writer: a reader's released cursor contradicts the published cursor %llu",
                   static_cast<unsigned long long>(self->core->cursor()));
      return Attempt::failed;
  }
  return Attempt::failed;
}

// May this call write now, or is the writer another task's or thread's?
bool enter_writer(WriterObject* self) {
  if (!enter(self)) return false;
  if (!self->claimed) [[likely]]
    return true;
  raise_busy(self);
  return false;
}

// Commits message bytes from `progress` on, without flushing. A whole message that fits is one slot.
queue::Room stage(WriterObject* self, const Gather& message, std::uint64_t& progress) {
  queue::Writer& core = *self->core;
  const std::uint64_t total = message.size();
  if (total <= core.largest()) [[likely]] {
    const queue::Room room = core.reserve(total);
    if (room != queue::Room::ready) return room;
    message.copy(0, total, core.slot(), core.outgrows_cache());
    core.commit(total, 0, total, self->checksum);
    return room;
  }
  do {
    const std::uint64_t size = std::min(core.fragment(), total - progress);
    const queue::Room room = core.reserve(size);
    if (room != queue::Room::ready) return room;
    message.copy(progress, size, core.slot(), core.outgrows_cache());
    core.commit(total, progress, size, self->checksum);
    progress += size;
    count_rings(self, core.flush());
  } while (progress < total);
  progress = 0;
  return queue::Room::ready;
}

void flush(WriterObject* self) { count_rings(self, self->core->flush()); }

bool gather_all(PyObject* const* buffers, Py_ssize_t n, Gather& message) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!message.add(buffers[i])) return false;
  }
  return true;
}

// The payload of put(object) as the codec has it; or the buffers themselves.
bool encode_into(WriterObject* self, PyObject* const* buffers, Py_ssize_t n, Gather& message) {
  if (self->codec == nullptr) return gather_all(buffers, n, message);
  if (n != 1) {
    PyErr_Format(PyExc_TypeError, "with a codec, put() takes one object, not %zd", n);
    return false;
  }
  const Ref encoded(PyObject_CallOneArg(self->codec, buffers[0]));
  return encoded && message.add(encoded.get());
}

}  // namespace

Attempt attempt_put(WriterObject* self, const Gather& message, std::uint64_t& progress) {
  if (!enter_writer(self)) return Attempt::failed;
  const queue::Room room = stage(self, message, progress);
  if (room != queue::Room::ready) return no_room(self, room);
  flush(self);
  ++self->count.messages;
  return Attempt::done;
}

Attempt attempt_put_many(WriterObject* self, PyObject* payloads, Py_ssize_t& next, std::uint64_t& progress) {
  if (!enter_writer(self)) return Attempt::failed;
  for (int staged = 0; next < PyList_GET_SIZE(payloads); ++next, ++staged) {
    Gather message;
    PyObject* payload = PyList_GET_ITEM(payloads, next);
    const bool gathered = message.add(payload);
    const queue::Room room = gathered ? stage(self, message, progress) : queue::Room::ready;
    if (!gathered || room != queue::Room::ready) {
      flush(self);  // what fits is readable while the rest waits
      return gathered ? no_room(self, room) : Attempt::failed;
    }
    ++self->count.messages;
    if (staged % kBatch == kBatch - 1) flush(self);
  }
  flush(self);
  return Attempt::done;
}

Attempt attempt_claim(WriterObject* self, std::uint64_t size, PyObject** result) {
  if (!enter_writer(self)) return Attempt::failed;
  queue::Writer& core = *self->core;
  const bool is_private = size > core.largest();
  std::byte* bytes;
  if (is_private) {
    bytes = static_cast<std::byte*>(std::malloc(size));
    if (bytes == nullptr) {
      PyErr_NoMemory();
      return Attempt::failed;
    }
  } else {
    const queue::Room room = core.reserve(size);
    if (room != queue::Room::ready) return no_room(self, room);
    bytes = core.slot();
  }
  *result = new_write_slot(self, bytes, size, is_private);
  if (*result == nullptr) {
    if (is_private) std::free(bytes);
    return Attempt::failed;
  }
  self->claimed = true;
  self->claimant = PyThread_get_thread_ident();
  return Attempt::done;
}

void end_claim(WriterObject* self) {
  self->claimed = false;
  pass_turn(self);
  if (self->queued != 0) kick(self);
  if (self->shut) retire(self);
}

bool put_and_wait(WriterObject* self, const Gather& message, Deadline deadline) {
  std::uint64_t progress = 0;
  return Ref(drive(self, deadline, "room", [&](PyObject** result) {
           const Attempt outcome = attempt_put(self, message, progress);
           if (outcome == Attempt::done) *result = Py_NewRef(Py_None);
           return outcome;
         }))
      .get() != nullptr;
}

namespace {

WriterObject* writer_of(PyObject* self) { return as_writer(reinterpret_cast<Endpoint*>(self)); }

bool parse_size(PyObject* object, Py_ssize_t& size) {
  size = PyNumber_AsSsize_t(object, PyExc_OverflowError);
  if (size == -1 && PyErr_Occurred()) return false;
  if (size < 0) PyErr_Format(PyExc_ValueError, "a slot must have 0 or more bytes, not %zd", size);
  return size >= 0;
}

// Opens the writer, which knows its codec only then. What else may be in its way is asked later.
bool claim_role(WriterObject* self) { return (self->opened && is_ours(self)) || enter(self); }

// Any iterable of payloads as a list, each checked before the first is sent. What could change its size meanwhile is
// held by a view, which forbids that.
PyObject* checked_payloads(WriterObject* self, PyObject* iterable) {
  Ref list(PySequence_List(iterable));
  if (!list) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* payload = PyList_GET_ITEM(list.get(), i);
    if (self->codec != nullptr) {
      PyObject* encoded = PyObject_CallOneArg(self->codec, payload);
      if (encoded == nullptr) return nullptr;
      PyList_SetItem(list.get(), i, encoded);
      payload = encoded;
    }
    if (PyBytes_CheckExact(payload)) continue;
    Gather probe;
    if (!probe.add(payload)) return nullptr;
    PyObject* view = PyMemoryView_FromObject(payload);
    if (view == nullptr || PyList_SetItem(list.get(), i, view) < 0) return nullptr;
  }
  return list.give();
}

bool refuse_queued(const WriterObject* self) {
  if (self->queued == 0) [[likely]]
    return false;
  raise_busy(self);
  return true;
}

PyObject* acquire_write(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  Deadline deadline;
  Py_ssize_t size;
  if (!take_timeout("acquire_write()", args, nargs, keywords, 1, false, deadline) || !parse_size(args[0], size)) {
    return nullptr;
  }
  PyObject* operation = new_operation(types.acquire, Kind::acquire_write, writer_of(self), deadline);
  if (operation != nullptr) as_operation(operation)->count = size;
  return operation;
}

PyObject* try_acquire_write(PyObject* self, PyObject* argument) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  Py_ssize_t size;
  if (!parse_size(argument, size)) return nullptr;
  if (writer->threadsafe && !is_free(writer)) Py_RETURN_NONE;
  if (refuse_queued(writer)) return nullptr;
  PyObject* slot = nullptr;
  if (attempt_claim(writer, static_cast<std::uint64_t>(size), &slot) == Attempt::not_ready) Py_RETURN_NONE;
  return slot;
}

PyObject* put(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  Deadline deadline;
  if (keywords != nullptr && !take_timeout("put()", args + nargs, 0, keywords, 0, true, deadline)) return nullptr;
  // Codecs and buffers may run Python code, in which anything can happen to the writer: its turn is taken behind them.
  if (!claim_role(writer)) return nullptr;
  Gather message;
  if (!encode_into(writer, args, nargs, message)) return nullptr;
  if (!take_turn(writer, deadline) || !enter_writer(writer) || refuse_queued(writer)) return nullptr;
  std::uint64_t progress = 0;
  return drive(writer, deadline, "room", [&](PyObject** result) {
    const Attempt outcome = attempt_put(writer, message, progress);
    if (outcome == Attempt::done) *result = Py_NewRef(Py_None);
    return outcome;
  });
}

PyObject* put_nowait(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  if (!(writer->threadsafe && writer->busy) && !enter(writer)) return nullptr;
  Gather message;
  if (!encode_into(writer, args, nargs, message)) return nullptr;
  const bool in_line = !is_free(writer);
  if (!in_line && message.size() > writer->core->largest()) {
    PyErr_Format(PyExc_ValueError, "a message of %llu bytes does not fit in the ring at once; put() sends it in fragments",
                 static_cast<unsigned long long>(message.size()));
    return nullptr;
  }
  std::uint64_t progress = 0;
  const Attempt outcome = in_line ? Attempt::not_ready : attempt_put(writer, message, progress);
  if (outcome == Attempt::done) Py_RETURN_NONE;
  if (outcome == Attempt::not_ready) {
    PyErr_Format(classes.full, "the writer: no room for %llu bytes now", static_cast<unsigned long long>(message.size()));
  }
  return nullptr;
}

PyObject* put_many(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  Deadline deadline;
  if (!take_timeout("put_many()", args, nargs, keywords, 1, false, deadline)) return nullptr;
  if (!claim_role(writer)) return nullptr;
  const Ref payloads(checked_payloads(writer, args[0]));
  if (!payloads) return nullptr;
  if (!take_turn(writer, deadline) || !enter_writer(writer) || refuse_queued(writer)) return nullptr;
  Py_ssize_t next = 0;
  std::uint64_t progress = 0;
  return drive(writer, deadline, "room", [&](PyObject** result) {
    const Attempt outcome = attempt_put_many(writer, payloads.get(), next, progress);
    if (outcome == Attempt::done) *result = Py_NewRef(Py_None);
    return outcome;
  });
}

bool put_while_room(WriterObject* self, PyObject* payloads, Py_ssize_t& sent) {
  if (!enter_writer(self)) return false;
  for (; sent < PyList_GET_SIZE(payloads); ++sent) {
    Gather message;
    std::uint64_t progress = 0;
    if (!message.add(PyList_GET_ITEM(payloads, sent))) return false;
    const queue::Room room = stage(self, message, progress);
    if (room != queue::Room::ready) {
      // What has been sent must be told; what is wrong is told to a call that sends none.
      if (sent == 0 && no_room(self, room) == Attempt::failed) return false;
      break;
    }
    ++self->count.messages;
    if (sent % kBatch == kBatch - 1) flush(self);
  }
  flush(self);
  return true;
}

PyObject* put_many_nowait(PyObject* self, PyObject* iterable) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  if (!claim_role(writer)) return nullptr;
  const Ref payloads(checked_payloads(writer, iterable));
  if (!payloads) return nullptr;
  if (!(writer->threadsafe && writer->busy) && !enter(writer)) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(payloads.get()); ++i) {
    PyObject* payload = PyList_GET_ITEM(payloads.get(), i);
    const Py_ssize_t size =
        PyBytes_CheckExact(payload) ? PyBytes_GET_SIZE(payload) : PyMemoryView_GET_BUFFER(payload)->len;
    if (static_cast<std::uint64_t>(size) > writer->core->largest()) {
      PyErr_Format(PyExc_ValueError,
                   "a message of %zd bytes does not fit in the ring at once; put() sends it in fragments", size);
      return nullptr;
    }
  }
  Py_ssize_t sent = 0;
  if (is_free(writer) && !put_while_room(writer, payloads.get(), sent)) return nullptr;
  return PyLong_FromSsize_t(sent);
}

PyObject* aput(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  Deadline deadline;
  if (keywords != nullptr && !take_timeout("aput()", args + nargs, 0, keywords, 0, true, deadline)) return nullptr;
  if (!claim_role(writer)) return nullptr;
  auto message = std::make_unique<Gather>();
  if (!encode_into(writer, args, nargs, *message)) return nullptr;
  PyObject* operation = new_operation(types.operation, Kind::put, writer, deadline);
  if (operation != nullptr) as_operation(operation)->message = message.release();
  return operation;
}

PyObject* aput_many(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  WriterObject* writer = writer_of(self);
  Deadline deadline;
  if (!take_timeout("aput_many()", args, nargs, keywords, 1, false, deadline)) return nullptr;
  if (!claim_role(writer)) return nullptr;
  Ref payloads(checked_payloads(writer, args[0]));
  if (!payloads) return nullptr;
  PyObject* operation = new_operation(types.operation, Kind::put_many, writer, deadline);
  if (operation != nullptr) as_operation(operation)->payloads = payloads.give();
  return operation;
}

PyMethodDef methods[] = {
    {"acquire_write", as_method(acquire_write), kFast,
     "acquire_write(nbytes, timeout=None)\n--\n\n"
     "Room for a message of up to nbytes bytes: a WriteSlot, when awaited, or entered with `with` or `async with`.\n\n"
     "Leaving the `with` publishes it, an exception in the body aborts it. One claim at a time."},
    {"try_acquire_write", try_acquire_write, METH_O,
     "Room for a message of up to nbytes bytes, or None. Never waits."},
    {"put", as_method(put), kFast,
     "put(*payload, timeout=None)\n--\n\n"
     "Send one message, gathered from any number of C-contiguous buffers; with a codec, from one object.\n\n"
     "The bytes are copied before it returns. Blocks while there is no room; aput() is for coroutines."},
    {"put_nowait", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(put_nowait)), METH_FASTCALL,
     "put_nowait(*payload)\n--\n\n"
     "Send one message now; raises Full when there is no room, or when others are waiting for it."},
    {"put_many", as_method(put_many), kFast,
     "put_many(payloads, timeout=None)\n--\n\n"
     "Send each payload of an iterable as one message. All are checked before the first is sent. When it times out or is\n"
     "interrupted, the first few may have been published. Blocks."},
    {"aput", as_method(aput), kFast,
     "aput(*payload, timeout=None)\n--\n\n"
     "Await the sending of one message. Tasks are served first in, first out; a cancelled one has sent nothing. The\n"
     "buffers must not change until it is done."},
    {"put_many_nowait", put_many_nowait, METH_O,
     "put_many_nowait(payloads)\n--\n\n"
     "Send each payload as one message while there is room, in order. How many: the rest is the caller's still.\n\n"
     "ValueError, and none is sent, when one is larger than the ring."},
    {"aput_many", as_method(aput_many), kFast,
     "aput_many(payloads, timeout=None)\n--\n\n"
     "Await the sending of each payload as one message. When it is cancelled, the first few may have been published. The\n"
     "payloads must not change until it is done."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyMethodDef* writer_hot_methods() { return methods; }

}  // namespace aiospin::bindings
