// What the hand-written types share: owned references, and the names and classes that are looked up once.
#pragma once

#include <Python.h>

#include <utility>

#include "bindings/guard.h"

#if PY_VERSION_HEX < 0x030A0000
#error "aiospin needs Python 3.10 or newer"
#endif

namespace aiospin::bindings {

// A reference that this scope owns.
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(PyObject* stolen) noexcept : object_(stolen) {}
  Ref(Ref&& other) noexcept : object_(other.give()) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  static Ref to(PyObject* borrowed) noexcept { return Ref(Py_XNewRef(borrowed)); }
  PyObject* get() const noexcept { return object_; }
  PyObject* give() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// What a weak reference refers to; empty when it is gone.
inline Ref referent(PyObject* reference) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(reference, &object) < 0) PyErr_Clear();
  return Ref(object);
#else
  PyObject* object = PyWeakref_GetObject(reference);
  return object == Py_None ? Ref() : Ref::to(object);
#endif
}

// Filled when the module is imported; the module refuses a second interpreter, so one copy serves.
struct Names {
  PyObject *claim, *suspend, *leave, *blocking, *peer_fds, *in_sets, *recheck, *kick, *await, *call_soon, *timeout, *role_name, *create_future, *done, *set_result;
};
struct Classes {
  PyObject *queue_closed, *reader_busy, *writer_busy, *reader_dropped, *forked_use, *corrupt_slot, *fragment_lost,
      *peer_died, *full, *empty;
  PyObject *get_running_loop, *peek_running_loop;  // asyncio's, which raises without a loop; asyncio's, which returns None
};
struct Types {
  PyTypeObject *reader, *writer, *read_slot, *lease, *kept, *write_slot, *operation, *acquire, *settled;
};
extern Names names;
extern Classes classes;
extern Types types;

bool look_up_names_and_classes();

// The exception that is set, as an object, and no longer set.
PyObject* take_exception();

inline PyObject* call_hook(PyObject* self, PyObject* name) { return PyObject_CallMethodNoArgs(self, name); }

// Forks seen by this process; an endpoint opened in another generation belongs to the parent.
extern unsigned long fork_generation;

// A method taking (positional..., name=...) with vectorcall arguments.
using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
inline PyCFunction as_method(FastMethod method) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method));
}
inline constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

}  // namespace aiospin::bindings
