// aiospin._native: the table of contents.
#include <pthread.h>

#include <exception>
#include <system_error>

#include "bindings/cold.h"
#include "bindings/endpoint.h"
#include "bindings/operation.h"
#include "bindings/parking.h"
#include "bindings/python.h"
#include "bindings/slots.h"
#include "bindings/turn.h"
#include "cpu/rung.h"

namespace py = pybind11;

namespace aiospin::bindings {

Names names;
Classes classes;
Types types;
unsigned long fork_generation = 0;
PyObject* guarded = nullptr;

bool make_endpoint_types(PyObject* module);

namespace {

bool intern(PyObject*& name, const char* text) {
  name = PyUnicode_InternFromString(text);
  return name != nullptr;
}

bool find(PyObject*& found, PyObject* module, const char* attribute) {
  found = PyObject_GetAttrString(module, attribute);
  return found != nullptr;
}

// Types, classes and the waiter thread exist once per process.
constexpr const char* kMainOnly =
    "the native backend of aiospin works in the main interpreter of a process only, and this is a subinterpreter";

bool in_main_interpreter() { return PyInterpreterState_Get() == PyInterpreterState_Main(); }

}  // namespace

// What the kernel refuses is an OSError, which says what was called; pybind11 would make it a RuntimeError.
void translate_refusals(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    const Ref arguments(Py_BuildValue("(is)", error.code().value(), error.what()));
    if (arguments) PyErr_SetObject(PyExc_OSError, arguments.get());
  }
}

PyObject* take_exception() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

bool look_up_names_and_classes() {
  const Ref errors(PyImport_ImportModule("aiospin._errors"));
  const Ref events(PyImport_ImportModule("asyncio.events"));
  return errors && events && intern(names.claim, "_claim") && intern(names.suspend, "_suspend") &&
         intern(names.leave, "_leave") && intern(names.blocking, "_blocking") && intern(names.peer_fds, "_peer_fds") &&
         intern(names.in_sets, "_in_sets") &&
         intern(names.recheck, "_recheck") && intern(names.kick, "_kick") && intern(names.await, "__await__") &&
         intern(names.call_soon, "call_soon") && intern(names.timeout, "timeout") &&
         intern(names.role_name, "role_name") && intern(names.create_future, "create_future") &&
         intern(names.done, "done") && intern(names.set_result, "set_result") &&
         find(classes.queue_closed, errors.get(), "QueueClosed") &&
         find(classes.reader_busy, errors.get(), "ReaderBusy") &&
         find(classes.writer_busy, errors.get(), "WriterBusy") &&
         find(classes.reader_dropped, errors.get(), "ReaderDropped") &&
         find(classes.forked_use, errors.get(), "ForkedUse") &&
         find(classes.corrupt_slot, errors.get(), "CorruptSlot") &&
         find(classes.fragment_lost, errors.get(), "FragmentLost") &&
         find(classes.peer_died, errors.get(), "PeerDied") && find(classes.full, errors.get(), "Full") &&
         find(classes.empty, errors.get(), "Empty") &&
         find(classes.get_running_loop, events.get(), "get_running_loop") &&
         find(classes.peek_running_loop, events.get(), "_get_running_loop");
}

}  // namespace aiospin::bindings

// The init function of the module proper, under a name that no import looks for.
PYBIND11_MODULE(native_in_main, module, py::mod_gil_not_used(), py::multiple_interpreters::not_supported()) {
  namespace bindings = aiospin::bindings;
  // From 3.13 on an import runs what is below in the main interpreter first, and only this in the other.
  if (!bindings::in_main_interpreter()) throw py::import_error(bindings::kMainOnly);
  module.doc() = "The native backend of aiospin.";
  aiospin::cpu::verdicts();  // here and now: a trial borrows signal handlers, and later the application sets its own
  module.attr("NAME") = "native";
  py::register_local_exception_translator(bindings::translate_refusals);
  PyObject* m = module.ptr();
  bindings::guarded = py::list().release().ptr();
  if (!bindings::look_up_names_and_classes() || !bindings::make_turn(m) || !bindings::make_slot_types(m) ||
      !bindings::make_operation_types(m) || !bindings::make_acquire_types(m) ||
      !bindings::make_parking_types(m) || !bindings::make_endpoint_types(m)) {
    throw py::error_already_set();
  }
  module.def("set_inline_hook", [](py::handle hook) { bindings::set_inline_hook(hook.ptr()); }, py::arg("hook"));
  module.def("give_no_turns", &bindings::give_no_turns);
  bindings::register_floor(module);
  bindings::register_mapping(module);
  bindings::register_waiting(module);
  bindings::register_word(module);
  bindings::main_thread =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  pthread_atfork(nullptr, nullptr, [] {
    ++bindings::fork_generation;
    bindings::main_thread = PyThread_get_thread_ident();  // whoever forks is the child's main thread
  });
  aiospin::ticks_per_us();  // calibrated here, so that no wait pays for it
}

// What an import calls: before pybind11 takes the GIL in its own way, which a subinterpreter would wait for in vain.
extern "C" PYBIND11_EXPORT PyObject* PyInit__native() {
  namespace bindings = aiospin::bindings;
  if (bindings::in_main_interpreter()) return PyInit_native_in_main();
  PyErr_SetString(PyExc_ImportError, bindings::kMainOnly);
  return nullptr;
}
