// Reader: attempts at taking messages, and the calls around them.
#include "bindings/reader.h"

#include <cstring>

#include "bindings/operation.h"
#include "bindings/slots.h"
#include "shm/doorbell.h"

namespace aiospin::bindings {

namespace {

void raise_corrupt(const ReaderObject* self) {
  PyErr_Format(classes.corrupt_slot, "reader %d: the slot at cursor %llu contradicts the published cursor or its number",
               self->rank, static_cast<unsigned long long>(self->core->cursor()));
}

void raise_lost(const ReaderObject* self) {
  PyErr_Format(classes.fragment_lost,
               "reader %d: the message before cursor %llu came in fragments, and its beginning went with the reader "
               "that held this rank before",
               self->rank, static_cast<unsigned long long>(self->core->cursor()));
}

void raise_dropped(const ReaderObject* self) {
  PyErr_Format(classes.reader_dropped, "reader %d was dropped by the writer", self->rank);
}

bool refuse_second_waiter(const ReaderObject* self) {
  if (self->queued == 0) [[likely]]
    return false;
  raise_busy(self);
  return true;
}

bool parse_count(PyObject* object, Py_ssize_t& count) {
  count = PyNumber_AsSsize_t(object, PyExc_OverflowError);
  if (count == -1 && PyErr_Occurred()) return false;
  if (count < 1) PyErr_Format(PyExc_ValueError, "the number of messages must be 1 or more, not %zd", count);
  return count >= 1;
}

// Message bytes as the user gets them.
PyObject* decoded(const ReaderObject* self, const queue::Slot& slot) {
  PyObject* bytes = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(slot.bytes),
                                              static_cast<Py_ssize_t>(slot.size));
  if (bytes == nullptr || self->codec == nullptr) [[likely]]
    return bytes;
  const Ref raw(bytes);
  return PyObject_CallOneArg(self->codec, bytes);
}

}  // namespace

Attempt take(ReaderObject* self, queue::Slot& slot) {
  if (!enter(self)) [[unlikely]]
    return Attempt::failed;
  switch (self->core->take(slot)) {
    case queue::Look::ready:
      ++self->leases;
      ++self->count.messages;
      return Attempt::done;
    case queue::Look::empty:
      return raise_failure(self) ? Attempt::failed : Attempt::not_ready;
    case queue::Look::closed:
      // It may have died while it was closing.
      if (raise_failure(self)) break;
      PyErr_Format(classes.queue_closed, "reader %d: the stream has ended", self->rank);
      break;
    case queue::Look::dropped:
      raise_dropped(self);
      break;
    case queue::Look::corrupt:
      raise_corrupt(self);
      break;
    case queue::Look::lost:
      raise_lost(self);
      break;
    case queue::Look::no_memory:
      PyErr_NoMemory();
      break;
  }
  return Attempt::failed;
}

void release(ReaderObject* self, const queue::Slot& slot) {
  --self->leases;
  // In a forked child the ring and its cursors are the parent's.
  if (is_ours(self)) count_rings(self, self->core->release(slot) ? 1 : 0);
  if (self->shut) [[unlikely]]
    retire(self);
}

void give_back(ReaderObject* self, const queue::Slot& slot) {
  --self->leases;
  --self->count.messages;
  if (is_ours(self)) self->core->give_back(slot);
  // Whoever waits looks at what the writer does; the bell tells it to look here too.
  if (is_ours(self) && (self->busy || self->queued != 0)) shm::doorbell::ring(self->bell);
  if (self->shut) [[unlikely]]
    retire(self);
}

namespace {

// A slot that was taken, as a lease.
Attempt lend(ReaderObject* self, const queue::Slot& slot, PyObject** result) {
  *result = new_read_slot(self, slot);
  if (*result != nullptr) return Attempt::done;
  give_back(self, slot);
  return Attempt::failed;
}

// A slot that was taken, as bytes, or what the codec makes of them.
Attempt hand_over(ReaderObject* self, const queue::Slot& slot, PyObject** result) {
  *result = decoded(self, slot);
  if (*result == nullptr && PyErr_ExceptionMatches(PyExc_MemoryError)) {
    give_back(self, slot);  // for another try
    return Attempt::failed;
  }
  release(self, slot);  // a message that its codec refuses is gone, and the codec's error says so
  return *result == nullptr ? Attempt::failed : Attempt::done;
}

}  // namespace

Attempt attempt_slot(ReaderObject* self, PyObject** result) {
  queue::Slot slot;
  const Attempt outcome = take(self, slot);
  return outcome == Attempt::done ? lend(self, slot, result) : outcome;
}

Attempt attempt_get(ReaderObject* self, PyObject** result) {
  queue::Slot slot;
  const Attempt outcome = take(self, slot);
  return outcome == Attempt::done ? hand_over(self, slot, result) : outcome;
}

Attempt attempt_get_up_to(ReaderObject* self, std::uint64_t most, PyObject** result) {
  queue::Slot slot;
  const Attempt outcome = take(self, slot);
  if (outcome != Attempt::done) return outcome;
  return slot.size > most ? lend(self, slot, result) : hand_over(self, slot, result);
}

Attempt attempt_get_many(ReaderObject* self, Py_ssize_t most, PyObject** result) {
  queue::Slot slot;
  const Attempt outcome = take(self, slot);
  if (outcome != Attempt::done) return outcome;
  Ref list(PyList_New(0));
  for (;;) {
    const Ref message(list ? decoded(self, slot) : nullptr);
    if (!message || PyList_Append(list.get(), message.get()) < 0) {
      // What came before it is delivered now, and the next call meets the error again. Alone, it is the answer.
      const bool first = !list || PyList_GET_SIZE(list.get()) == 0;
      --self->leases;
      if (first && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        self->core->consume(slot);
      } else {
        --self->count.messages;
        self->core->give_back(slot);
      }
      count_rings(self, self->core->settle() ? 1 : 0);
      if (first) {
        if (self->shut) retire(self);
        return Attempt::failed;
      }
      PyErr_Clear();
      break;
    }
    --self->leases;
    self->core->consume(slot);
    if (PyList_GET_SIZE(list.get()) == most || self->shut) break;
    const queue::Look look = self->core->take(slot);
    if (look == queue::Look::lost) {
      raise_lost(self);  // told once, so it is kept for the call that finds nothing; every other end is met again
      const Ref lost(take_exception());
      if (lost && !add_failure(self, lost.get())) PyErr_Clear();
    }
    if (look != queue::Look::ready) break;
    ++self->leases;
    ++self->count.messages;
  }
  count_rings(self, self->core->settle() ? 1 : 0);
  if (self->shut) retire(self);  // closed while a codec ran
  *result = list.give();
  return Attempt::done;
}

namespace {

PyObject* acquire_read(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  Deadline deadline;
  if ((nargs != 0 || keywords != nullptr) && !take_timeout("acquire_read()", args, nargs, keywords, 0, false, deadline)) {
    return nullptr;
  }
  return new_operation(types.acquire, Kind::acquire_read, as_endpoint(self), deadline);
}

PyObject* try_acquire_read(PyObject* self, PyObject*) {
  const Guard guard;
  ReaderObject* reader = as_reader(as_endpoint(self));
  if (refuse_second_waiter(reader)) return nullptr;
  PyObject* slot = nullptr;
  const Attempt outcome = attempt_slot(reader, &slot);
  if (outcome == Attempt::not_ready) Py_RETURN_NONE;
  return slot;
}

PyObject* get(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  ReaderObject* reader = as_reader(as_endpoint(self));
  Deadline deadline;
  if ((nargs != 0 || keywords != nullptr) && !take_timeout("get()", args, nargs, keywords, 0, false, deadline)) {
    return nullptr;
  }
  if (refuse_second_waiter(reader)) return nullptr;
  return drive(reader, deadline, "message", [reader](PyObject** result) { return attempt_get(reader, result); });
}

PyObject* get_up_to(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  ReaderObject* reader = as_reader(as_endpoint(self));
  Deadline deadline;
  Py_ssize_t most;
  if (!take_timeout("_get_up_to()", args, nargs, keywords, 1, false, deadline) || !parse_count(args[0], most) ||
      refuse_second_waiter(reader)) {
    return nullptr;
  }
  return drive(reader, deadline, "message", [=](PyObject** result) {
    return attempt_get_up_to(reader, static_cast<std::uint64_t>(most), result);
  });
}

PyObject* get_nowait(PyObject* self, PyObject*) {
  const Guard guard;
  ReaderObject* reader = as_reader(as_endpoint(self));
  if (refuse_second_waiter(reader)) return nullptr;
  PyObject* result = nullptr;
  if (attempt_get(reader, &result) == Attempt::not_ready) {
    PyErr_Format(classes.empty, "reader %d: no message now", reader->rank);
  }
  return result;
}

PyObject* get_many(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  ReaderObject* reader = as_reader(as_endpoint(self));
  Deadline deadline;
  Py_ssize_t most;
  if (!take_timeout("get_many()", args, nargs, keywords, 1, false, deadline) || !parse_count(args[0], most) ||
      refuse_second_waiter(reader)) {
    return nullptr;
  }
  return drive(reader, deadline, "message",
               [=](PyObject** result) { return attempt_get_many(reader, most, result); });
}

PyObject* aget(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  Deadline deadline;
  if (!take_timeout("aget()", args, nargs, keywords, 0, false, deadline)) return nullptr;
  return new_operation(types.operation, Kind::get, as_endpoint(self), deadline);
}

PyObject* aget_many(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords) {
  const Guard guard;
  Deadline deadline;
  Py_ssize_t most;
  if (!take_timeout("aget_many()", args, nargs, keywords, 1, false, deadline) || !parse_count(args[0], most)) {
    return nullptr;
  }
  PyObject* operation = new_operation(types.operation, Kind::get_many, as_endpoint(self), deadline);
  if (operation != nullptr) as_operation(operation)->count = most;
  return operation;
}

PyMethodDef methods[] = {
    {"acquire_read", as_method(acquire_read), kFast,
     "acquire_read(timeout=None)\n--\n\n"
     "The next message in place: a ReadSlot, when awaited, or entered with `with` or `async with`.\n\n"
     "Nothing happens before that, and a cancelled or timed-out wait has taken nothing. Leaving the `with` gives the\n"
     "bytes back as soon as no view of them lives."},
    {"try_acquire_read", try_acquire_read, METH_NOARGS,
     "The next message in place, or None. Never waits. A slot that is dropped unread is handed out again."},
    {"get", as_method(get), kFast,
     "get(timeout=None)\n--\n\n"
     "The next message, owned: bytes, or what the codec makes of them. Blocks; aget() is for coroutines."},
    {"_get_up_to", as_method(get_up_to), kFast,
     "_get_up_to(most, timeout=None)\n--\n\n"
     "The next message: as get() has it up to that many bytes, in place if it is larger. Blocks."},
    {"get_nowait", get_nowait, METH_NOARGS,
     "The next message, owned; raises Empty when there is none. Never waits."},
    {"get_many", as_method(get_many), kFast,
     "get_many(n, timeout=None)\n--\n\n"
     "A list of 1 to n owned messages: waits for the first, then takes what is there. Blocks."},
    {"aget", as_method(aget), kFast,
     "aget(timeout=None)\n--\n\n"
     "Await the next message, owned. A cancelled wait has taken nothing."},
    {"aget_many", as_method(aget_many), kFast,
     "aget_many(n, timeout=None)\n--\n\n"
     "Await a list of 1 to n owned messages. A cancelled wait has taken nothing."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyMethodDef* reader_hot_methods() { return methods; }

}  // namespace aiospin::bindings
