// aiospin._native.WordWatch: aiospin.lowlevel's door to the rungs and the waiter thread.
#include <pybind11/pybind11.h>

#include "bindings/cold.h"
#include "bindings/python.h"
#include "platform/clock.h"
#include "wait/completion.h"
#include "wait/ladder.h"
#include "wait/service.h"
#include "wait/word_watch.h"

namespace py = pybind11;

namespace aiospin::bindings {

namespace {

wait::Comparison comparison_named(const std::string& name) {
  if (name == "==") return wait::Comparison::equal;
  if (name == "!=") return wait::Comparison::not_equal;
  if (name == ">=") return wait::Comparison::at_least;
  if (name == "<") return wait::Comparison::below;
  throw py::value_error("comparison must be one of ==, !=, >=, <, not '" + name + "'");
}

struct View {
  View(py::object object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &buffer, flags) < 0) throw py::error_already_set();
  }
  ~View() { PyBuffer_Release(&buffer); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  Word& word_at(py::ssize_t offset) const {
    if (offset < 0 || buffer.len < 8 || offset > buffer.len - 8) {
      throw py::value_error("a word of 8 bytes at offset " + std::to_string(offset) + " does not lie in a buffer of " +
                            std::to_string(buffer.len) + " bytes");
    }
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.buf) + static_cast<std::uintptr_t>(offset);
    if (address % alignof(Word) != 0) {
      throw py::value_error("the word at offset " + std::to_string(offset) + " is not aligned to 8 bytes");
    }
    return *reinterpret_cast<Word*>(address);
  }

  Py_buffer buffer;
};

void store_word(py::object buffer, std::uint64_t value, py::ssize_t offset) {
  // sync:word release: what the caller wrote before is visible to whoever waited for the word.
  View(std::move(buffer), PyBUF_WRITABLE).word_at(offset).store(value, std::memory_order_release);
}

// Keeps the buffer for as long as anything may look at the word.
class BufferWordWatch {
 public:
  BufferWordWatch(py::object buffer, py::ssize_t offset, const std::string& comparison, std::uint64_t value,
                  std::uint64_t mask)
      : view_(std::move(buffer), PyBUF_SIMPLE),
        watch_(view_.word_at(offset), comparison_named(comparison), value, mask) {}
  ~BufferWordWatch() { unmonitor(); }

  bool ready() const { return watch_.ready(); }

  // Watches for at most so long, the GIL released. True when ready.
  bool watch(double us) {
    const Ticks until = ticks() + from_us(us);
    const py::gil_scoped_release released;
    return wait::monitor(watch_, until);
  }

  void monitor(std::shared_ptr<wait::Completion> completion, wait::Token token, double us) {
    wait::Service::instance().submit(watch_, std::move(completion), token, ticks() + from_us(us));
  }
  void unmonitor() { wait::Service::instance().cancel(watch_); }

 private:
  View view_;
  wait::WordWatch watch_;
};

}  // namespace

void register_word(py::module_& module) {
  module.def("store_word", store_word, py::arg("buffer"), py::arg("value"), py::arg("offset"));
  py::class_<BufferWordWatch>(module, "WordWatch", "One aligned 64-bit word of a buffer, compared with a value.")
      .def(py::init<py::object, py::ssize_t, const std::string&, std::uint64_t, std::uint64_t>(), py::arg("buffer"),
           py::arg("offset"), py::arg("comparison"), py::arg("value"), py::arg("mask"))
      .def("ready", &BufferWordWatch::ready)
      .def("watch", &BufferWordWatch::watch, py::arg("us"))
      .def("monitor", &BufferWordWatch::monitor, py::arg("completion"), py::arg("token"), py::arg("us"))
      .def("unmonitor", &BufferWordWatch::unmonitor);
}

}  // namespace aiospin::bindings
