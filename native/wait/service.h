// The waiter thread: watches words for event loops, one per process, started by the first watch.
//
// It blocks all signals, never takes a lock that a loop holds across a call, never calls into Python. What it does with
// a watch: look at it in turn with the others until it is ready (push the token), or until its horizon is over; then it
// parks it on behalf of the loop (announce, look again) and forgets it, since the bell wakes the loop directly.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "platform/clock.h"
#include "wait/completion.h"
#include "wait/watch.h"

namespace aiospin::wait {

class Service {
 public:
  // The service of this process; a forked child gets a new one, without the parent's watches.
  static Service& instance();

  // `watch` must stay valid until cancel(watch) has returned, or until the token was pushed and seen.
  void submit(Watch& watch, std::shared_ptr<Completion> completion, Token token, Ticks until);
  // After this the thread does not touch `watch` again. True when it had not been answered or parked yet.
  bool cancel(const Watch& watch) noexcept;

 private:
  struct Entry {
    Watch* watch;
    std::shared_ptr<Completion> completion;
    Token token;
    Ticks until;
  };

  void start();
  void run() noexcept;
  void pass() noexcept;
  void idle(std::unique_lock<std::mutex>& hold);

  std::mutex guard_;
  std::condition_variable work_;
  std::vector<Entry> entries_;
  bool started_ = false;
  Ticks thorough_at_ = 0;
  // Whoever wants `guard_` says so first: the thread holds it while it watches, and an unfair mutex would starve others.
  std::atomic<unsigned> knocking_{0};
};

}  // namespace aiospin::wait
