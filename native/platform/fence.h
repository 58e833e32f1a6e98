// One fence for cold paths: what was loaded before it is older than what is loaded after it.
//
// On x86 loads keep their order anyway. Thread sanitizers do not model fences (gcc says so with -Wtsan), and there it is
// left out: it orders plain loads of bytes that only a broken promise lets anybody change meanwhile.
#pragma once

#include <atomic>

namespace aiospin {

inline void order_loads() noexcept {
#if !defined(__SANITIZE_THREAD__)
  // sync:gate acquire: the gate that is loaded next is no older than the bytes that were loaded before.
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace aiospin
