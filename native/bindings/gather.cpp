// Gathering the bytes of a message from buffers.
#include "bindings/gather.h"

#include <algorithm>
#include <cstring>

#include "platform/copy.h"
#include "platform/probe.h"

namespace aiospin::bindings {

Gather::~Gather() {
  for (std::size_t i = 0; i < parts_; ++i) PyBuffer_Release(const_cast<Py_buffer*>(&part(i)));
}

bool Gather::add(PyObject* object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "a payload must be bytes-like, not %.100s", Py_TYPE(object)->tp_name);
    } else if (PyErr_ExceptionMatches(PyExc_BufferError)) {
      PyErr_Format(PyExc_BufferError, "a payload must be C-contiguous, and this %.100s is not",
                   Py_TYPE(object)->tp_name);
    }
    return false;
  }
  if (parts_ < kInPlace) {
    first_[parts_] = view;
  } else {
    more_.push_back(view);
  }
  ++parts_;
  size_ += static_cast<std::uint64_t>(view.len);
  return true;
}

void Gather::adopt(const std::byte* bytes, std::uint64_t size, PyObject* owner) noexcept {
  owner_ = Ref::to(owner);
  adopted_ = bytes;
  size_ = size;
}

void Gather::copy(std::uint64_t offset, std::uint64_t n, std::byte* to, bool uncached) const noexcept {
  const auto copy_piece = [uncached](std::byte* there, const std::byte* from, std::uint64_t length) {
    if (uncached && length >= kWorthPassing) [[unlikely]] {
      copy_past_cache(there, from, length);
    } else {
      std::memcpy(there, from, length);
    }
  };
  if (adopted_ != nullptr) {
    copy_piece(to, adopted_ + offset, n);
    return;
  }
  for (std::size_t i = 0; i < parts_ && n > 0; ++i) {
    const auto length = static_cast<std::uint64_t>(part(i).len);
    if (offset >= length) {
      offset -= length;
      continue;
    }
    const std::uint64_t piece = std::min(n, length - offset);
    copy_piece(to, static_cast<const std::byte*>(part(i).buf) + offset, piece);
    to += piece;
    n -= piece;
    offset = 0;
    AIOSPIN_PROBE(copy);
  }
}

}  // namespace aiospin::bindings
