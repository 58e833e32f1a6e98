// Time-outs, checked at the boundary.
#include "bindings/deadline.h"

#include <cmath>

namespace aiospin::bindings {

bool parse_timeout(PyObject* object, Deadline& deadline) {
  if (object == nullptr || object == Py_None) return true;
  if (PyBool_Check(object)) {
    PyErr_Format(PyExc_TypeError, "timeout must be a number of seconds or None, not %R", object);
    return false;
  }
  const double seconds = PyFloat_AsDouble(object);
  if (seconds == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "timeout must be a number of seconds or None, not %R", object);
    }
    return false;
  }
  if (std::isnan(seconds) || seconds < 0) {
    PyErr_Format(PyExc_ValueError, "timeout must be 0 or more seconds, or None, not %R", object);
    return false;
  }
  // Beyond a century it is for ever, and the arithmetic in ticks stays exact.
  if (seconds < 3e9) deadline.seconds = seconds;
  return true;
}

bool take_timeout(const char* call, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords, Py_ssize_t positional,
                  bool keyword_only, Deadline& deadline) {
  const Py_ssize_t given = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  const Py_ssize_t most = positional + (keyword_only ? 0 : 1);
  if (nargs < positional || nargs > most) {
    PyErr_Format(PyExc_TypeError, "%s takes %s%zd positional argument%s, not %zd", call,
                 nargs < positional || keyword_only ? "" : "at most ", nargs < positional ? positional : most,
                 (nargs < positional ? positional : most) == 1 ? "" : "s", nargs);
    return false;
  }
  PyObject* timeout = nargs > positional ? args[positional] : nullptr;
  for (Py_ssize_t i = 0; i < given; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, i);
    const bool known = name == names.timeout || PyUnicode_Compare(name, names.timeout) == 0;
    if (!known || timeout != nullptr) {
      PyErr_Format(PyExc_TypeError, known ? "%s got %R twice" : "%s got an unexpected keyword argument %R", call, name);
      return false;
    }
    timeout = args[nargs + i];
  }
  return parse_timeout(timeout, deadline);
}

}  // namespace aiospin::bindings
