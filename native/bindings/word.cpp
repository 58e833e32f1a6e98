// aiospin._native.WordWatch and BytesWatch: aiospin.lowlevel's door to the rungs and the waiter thread.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bindings/cold.h"
#include "bindings/python.h"
#include "platform/clock.h"
#include "wait/bytes_watch.h"
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

// A buffer that stays where it is for as long as this lives.
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

// Watches until `held_us` with the GIL, and until `us` without it: that is decided in aiospin.lowlevel.
//
// The GIL is not dropped by an object: in a daemon thread, at the end of the interpreter, taking it again unwinds the
// stack, and a destructor that is left so ends the process.
template <typename Watched>
bool watch_for(double us, double held_us, Watched watched) {
  const Ticks now = ticks(), until = now + from_us(us);
  if (watched(std::min(until, now + from_us(held_us)))) return true;
  if (held_us >= us) return false;
  bool found;
  Py_BEGIN_ALLOW_THREADS;
  found = watched(until);
  Py_END_ALLOW_THREADS;
  return found;
}

template <typename Watch>
Watch& alive(std::optional<Watch>& watch) {
  if (!watch) throw py::value_error("the buffer was released");
  return *watch;
}

// Keeps the buffer until release(), for as long as anything may look at the word.
class BufferWordWatch {
 public:
  BufferWordWatch(py::object buffer, py::ssize_t offset, const std::string& comparison, std::uint64_t value,
                  std::uint64_t mask) {
    view_.emplace(std::move(buffer), PyBUF_SIMPLE);
    watch_.emplace(view_->word_at(offset), comparison_named(comparison), value, mask);
  }
  ~BufferWordWatch() { unmonitor(); }

  bool ready() { return alive(watch_).ready(); }

  // True when ready.
  bool watch(double us, double held_us) {
    const wait::WordWatch& watch = alive(watch_);
    return watch_for(us, held_us, [&](Ticks until) { return wait::monitor(watch, until); });
  }

  void monitor(std::shared_ptr<wait::Completion> completion, wait::Token token, double us) {
    wait::Service::instance().submit(alive(watch_), std::move(completion), token, ticks() + from_us(us));
    monitored_ = true;
  }
  void unmonitor() {
    if (std::exchange(monitored_, false)) wait::Service::instance().cancel(*watch_);
  }

  void release() {
    unmonitor();
    watch_.reset();
    view_.reset();
  }

 private:
  std::optional<View> view_;
  std::optional<wait::WordWatch> watch_;
  bool monitored_ = false;
};

// Keeps the buffer until release().
class BufferBytesWatch {
 public:
  explicit BufferBytesWatch(py::object buffer) {
    view_.emplace(std::move(buffer), PyBUF_SIMPLE);
    const auto length = static_cast<std::size_t>(view_->buffer.len);
    if (length == 0) throw py::value_error("an empty buffer: there is nothing to watch");
    if (length > wait::BytesWatch::kMost) {
      throw py::value_error("a buffer of " + std::to_string(length) + " bytes cannot be watched whole; at most " +
                            std::to_string(wait::BytesWatch::kMost) + " bytes can: give the part that changes");
    }
    watch_.emplace(view_->buffer.buf, length);
  }

  // True when a byte has changed since the last call of this or of changed().
  bool watch(double us, double held_us) {
    wait::BytesWatch& watch = alive(watch_);
    const bool found = watch_for(us, held_us, [&](Ticks until) { return watch.wait(until); });
    watch.remember();
    return found;
  }

  bool changed() {
    wait::BytesWatch& watch = alive(watch_);
    const bool found = watch.changed();
    watch.remember();
    return found;
  }

  void release() {
    watch_.reset();
    view_.reset();
  }

 private:
  std::optional<View> view_;
  std::optional<wait::BytesWatch> watch_;
};

}  // namespace

void register_word(py::module_& module) {
  module.def("store_word", store_word, py::arg("buffer"), py::arg("value"), py::arg("offset"));
  py::class_<BufferWordWatch>(module, "WordWatch", "One aligned 64-bit word of a buffer, compared with a value.")
      .def(py::init<py::object, py::ssize_t, const std::string&, std::uint64_t, std::uint64_t>(), py::arg("buffer"),
           py::arg("offset"), py::arg("comparison"), py::arg("value"), py::arg("mask"))
      .def("ready", &BufferWordWatch::ready)
      .def("watch", &BufferWordWatch::watch, py::arg("us"), py::arg("held_us"))
      .def("monitor", &BufferWordWatch::monitor, py::arg("completion"), py::arg("token"), py::arg("us"))
      .def("unmonitor", &BufferWordWatch::unmonitor)
      .def("release", &BufferWordWatch::release);
  py::class_<BufferBytesWatch>(module, "BytesWatch", "All bytes of a small buffer, compared with what they were.")
      .def(py::init<py::object>(), py::arg("buffer"))
      .def("changed", &BufferBytesWatch::changed)
      .def("watch", &BufferBytesWatch::watch, py::arg("us"), py::arg("held_us"))
      .def("release", &BufferBytesWatch::release);
}

}  // namespace aiospin::bindings
