// The bytes of one message, gathered from any number of C-contiguous buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/python.h"

namespace aiospin::bindings {

class Gather {
 public:
  Gather() noexcept = default;
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;
  ~Gather();

  // Both raise TypeError for what is not bytes-like and BufferError for what is not contiguous, naming it.
  bool add(PyObject* object);
  // Memory that `owner` keeps, instead of buffers; the gather holds the owner.
  void adopt(const std::byte* bytes, std::uint64_t size, PyObject* owner) noexcept;

  std::uint64_t size() const noexcept { return size_; }
  // Copies message bytes [offset, offset + n) to `to`; large pieces past the caches, if `to` is in none.
  void copy(std::uint64_t offset, std::uint64_t n, std::byte* to, bool uncached) const noexcept;

 private:
  static constexpr std::size_t kInPlace = 4;
  const Py_buffer& part(std::size_t i) const noexcept { return i < kInPlace ? first_[i] : more_[i - kInPlace]; }

  Py_buffer first_[kInPlace];
  std::vector<Py_buffer> more_;
  std::size_t parts_ = 0;
  std::uint64_t size_ = 0;
  const std::byte* adopted_ = nullptr;
  Ref owner_;
};

}  // namespace aiospin::bindings
