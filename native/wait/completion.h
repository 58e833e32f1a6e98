// Tokens on their way from the waiter thread to one event loop, and the eventfd that wakes it.
//
// Protocol, loop side: drain the eventfd, then exchange `pending`, then pop. A push that comes after the pop finds
// pending == false and writes; one that comes before is popped. A plain store of `pending` could overtake the pop and
// leave a token behind a loop that sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "platform/fd.h"

namespace aiospin::wait {

using Token = std::uint64_t;

class Completion {
 public:
  Completion();

  int fileno() const noexcept { return wake_.get(); }
  // Any thread.
  void push(Token token) noexcept;
  // The loop's thread.
  std::vector<Token> pop();

 private:
  Fd wake_;
  std::atomic<bool> pending_{false};
  std::mutex guard_;
  std::vector<Token> tokens_;
};

}  // namespace aiospin::wait
