// Set-up fails with std::system_error that names the call; hot paths return enums and never come here.
#pragma once

#include <cerrno>
#include <system_error>

namespace aiospin {

[[noreturn]] inline void throw_errno(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

}  // namespace aiospin
