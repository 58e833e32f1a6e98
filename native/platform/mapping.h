// Shared mappings of a file: plain, or the same bytes twice in a row so that no range ever wraps.
//
// Guarantee: unmapped when the object dies. Assumption: offset and length are multiples of the page size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aiospin {

enum class Access { read_only, read_write };

class FileMapping {
 public:
  FileMapping() noexcept = default;
  static FileMapping once(int fd, std::uint64_t offset, std::size_t length, Access access);
  // [length bytes][the same length bytes again]
  static FileMapping twice(int fd, std::uint64_t offset, std::size_t length, Access access);

  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();

  std::byte* data() const noexcept { return base_; }
  explicit operator bool() const noexcept { return base_ != nullptr; }

 private:
  FileMapping(std::byte* base, std::size_t length) noexcept : base_(base), length_(length) {}
  std::byte* base_ = nullptr;
  std::size_t length_ = 0;
};

}  // namespace aiospin
