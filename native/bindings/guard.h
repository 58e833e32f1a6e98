// Stands in for the GIL where there is none.
//
// Every entry from Python into the hand-written types opens with a Guard. With the GIL it is nothing. In free-threaded
// Python it is a critical section on one object of the module: like the GIL it serialises the entries, and like the GIL
// it is let go whenever the thread blocks, releases the interpreter or is held up by another lock, so the same reasoning
// holds for both builds.
#pragma once

#include <Python.h>

namespace aiospin::bindings {

extern PyObject* guarded;  // made when the module is imported

class Guard {
 public:
#ifdef Py_GIL_DISABLED
  Guard() noexcept { PyCriticalSection_Begin(&section_, guarded); }
  ~Guard() { PyCriticalSection_End(&section_); }
#else
  Guard() noexcept {}
#endif
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

#ifdef Py_GIL_DISABLED
 private:
  PyCriticalSection section_;
#endif
};

}  // namespace aiospin::bindings
