#include "wait/completion.h"

#include <sys/eventfd.h>

#include "platform/error.h"

namespace aiospin::wait {

Completion::Completion() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_.get() < 0) throw_errno("eventfd");
}

void Completion::push(Token token) noexcept {
  {
    const std::lock_guard hold(guard_);
    tokens_.push_back(token);
  }
  // sync:pending acq_rel: the token above is visible to the loop that finds pending set.
  if (pending_.exchange(true, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  // An eventfd refuses only when its counter is full, and then the loop is awake anyway.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

std::vector<Token> Completion::pop() {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t drained = read(wake_.get(), &count, sizeof count);
  // sync:pending acq_rel: ordered between the drain and the pop; see the protocol above.
  pending_.exchange(false, std::memory_order_acq_rel);
  const std::lock_guard hold(guard_);
  return std::exchange(tokens_, {});
}

}  // namespace aiospin::wait
