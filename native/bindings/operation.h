// The awaitable half of every call: a coroutine-like object around an attempt.
//
// Acquire adds `with` and `async with`. Nothing happens before the first step; nothing is claimed before the step that
// returns it. States: created -> (yielded | suspended)* -> finished.
#pragma once

#include <memory>

#include "bindings/endpoint.h"
#include "bindings/gather.h"
#include "bindings/turn.h"

namespace aiospin::bindings {

enum class Kind : std::uint8_t { acquire_read, get, get_many, acquire_write, put, put_many };
enum class Stage : std::uint8_t { created, yielded, suspended, finished };

struct OperationObject {
  PyObject_HEAD;
  Endpoint* endpoint;
  PyObject* waiter;        // the iterator of the future it is suspended on
  PyObject* slot;          // what `with` has to end
  PyObject* payloads;      // put_many
  Gather* message;         // put
  Py_ssize_t count;        // get_many: at most; acquire_write: bytes; put_many: payloads sent
  std::uint64_t progress;  // put, put_many: message bytes sent in fragments
  Deadline deadline;
  std::uint64_t began_ns;  // of the wait; 0 while there was none
  std::shared_ptr<Turn> turn;
  Kind kind;
  Stage stage;
  unsigned asks;           // of its thread's Turn, when it stopped
  bool waits;              // counted in endpoint->queued
  bool left;               // _suspend() was called, so _leave() is owed
};

inline OperationObject* as_operation(PyObject* self) { return reinterpret_cast<OperationObject*>(self); }

inline bool reads(const OperationObject* self) { return self->kind <= Kind::get_many; }
const char* wanted(const OperationObject* self);  // what a time-out says was missing
const char* kind_name(Kind kind);
// One try, whatever the kind; `result` is a new reference when done.
Attempt attempt(OperationObject* self, PyObject** result);

PyObject* new_operation(PyTypeObject* type, Kind kind, Endpoint* endpoint, const Deadline& deadline);

// Calls hook("inline", operation) before every wait in a loop's own thread; None for no hook.
void set_inline_hook(PyObject* hook);
bool hooked();

// The slots that Acquire shares: a type made from a spec does not inherit them as they are, but through Python-level
// wrappers that cost 100 ns a step.
void operation_dealloc(PyObject* op);
void operation_finalize(PyObject* op);
int operation_traverse(PyObject* op, visitproc visit, void* arg);
PyObject* operation_next(PyObject* op);
PySendResult step(PyObject* op, PyObject* value, PyObject** result);

bool make_operation_types(PyObject* module);
bool make_acquire_types(PyObject* module);  // after the operation's

}  // namespace aiospin::bindings
