// A 64-bit word that processes share.
#pragma once

#include <atomic>
#include <cstdint>

namespace aiospin {

using Word = std::atomic<std::uint64_t>;

// Lock-free, hence address-free: the same atomic works through every mapping of it.
static_assert(Word::is_always_lock_free && sizeof(Word) == 8 && alignof(Word) == 8);

}  // namespace aiospin
