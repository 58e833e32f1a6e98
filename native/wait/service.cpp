#include "wait/service.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "cpu/exclusive.h"
#include "cpu/relax.h"
#include "cpu/rung.h"

namespace aiospin::wait {

namespace {

// How long one look at one word may last, since somebody may knock: that is the longest that a loop stands at the door. A
// CPU that dozes in it wants longer ones, or it would arm and wake all the time; on arm64 whoever knocks ends them.
constexpr double kTurnUs = 1, kDozeUs = 5;
// The end of a queue, a drop or a join change other words than the one that is watched; they are looked at this often.
constexpr double kThoroughUs = 50;
// After its last watch the thread stays awake this long: waking it costs a loop more than it costs to linger.
constexpr double kLingerUs = 20;

std::atomic<Service*> the_service{nullptr};

void forget_in_child() noexcept {
  // The thread exists in the parent only; its state may have been copied in mid-change, so it is left alone.
  // relaxed: a forked child has one thread.
  the_service.store(nullptr, std::memory_order_relaxed);
}

// Locks while telling the thread that somebody is at the door.
class Knock {
 public:
  Knock(std::mutex& guard, std::atomic<unsigned>& knocking) noexcept : guard_(guard), knocking_(knocking) {
    // relaxed: a request to hurry; the mutex orders everything else.
    knocking_.fetch_add(1, std::memory_order_relaxed);
#if defined(__aarch64__)
    cpu::send_event();
#endif
    guard_.lock();
    // relaxed: as above.
    knocking_.fetch_sub(1, std::memory_order_relaxed);
  }
  ~Knock() { guard_.unlock(); }

 private:
  std::mutex& guard_;
  std::atomic<unsigned>& knocking_;
};

}  // namespace

Service& Service::instance() {
  // sync:service acquire: the object is complete.
  Service* found = the_service.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  static const int registered = pthread_atfork(nullptr, nullptr, forget_in_child);
  static_cast<void>(registered);
  auto* fresh = new Service;  // lives as long as the process: its thread never ends
  // sync:service acq_rel: publishes the object, or sees the one that won.
  if (the_service.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *found;
}

void Service::submit(Watch& watch, std::shared_ptr<Completion> completion, Token token, Ticks until) {
  {
    const Knock hold(guard_, knocking_);
    if (!started_) start();
    entries_.push_back({&watch, std::move(completion), token, until});
  }
  work_.notify_one();
}

bool Service::cancel(const Watch& watch) noexcept {
  const Knock hold(guard_, knocking_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.watch == &watch; });
  if (found == entries_.end()) return false;
  *found = std::move(entries_.back());
  entries_.pop_back();
  return true;
}

void Service::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits it: signals are the application's
  try {
    std::thread([this] { run(); }).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  started_ = true;
}

void Service::run() noexcept {
  pthread_setname_np(pthread_self(), "aiospin-waiter");
  std::unique_lock hold(guard_);
  for (;;) {
    if (entries_.empty()) idle(hold);
    pass();
    // relaxed: see Knock.
    if (knocking_.load(std::memory_order_relaxed) != 0) {
      hold.unlock();
      // relaxed: see Knock.
      while (knocking_.load(std::memory_order_relaxed) != 0) cpu::relax();
      hold.lock();
    }
  }
}

void Service::idle(std::unique_lock<std::mutex>& hold) {
  hold.unlock();
  const Ticks until = ticks() + from_us(kLingerUs);
  // relaxed: see Knock.
  while (knocking_.load(std::memory_order_relaxed) == 0 && ticks() < until) cpu::relax();
  hold.lock();
  work_.wait(hold, [this] { return !entries_.empty(); });
}

// One look at every watch. With one watch the look is the rung's own wait. With several the thread goes round with short
// breaths, since a CPU monitors one range at a time. Dozing on the word that is due for a turn sees a store to that one no
// sooner (0.25 us, median), and to any other when the doze ends: 3 us instead of 0.4, by tests/measure/main.cpp.
void Service::pass() noexcept {
  const bool alone = entries_.size() == 1;
  Ticks now = ticks();
  if (alone) {
    const Entry& only = entries_.front();
    const cpu::Rung& rung = only.watch->rung();
    const Ticks turn = now + from_us(rung.monitors() ? kDozeUs : kTurnUs);
    cpu::idle(rung, only.watch->word(), only.watch->seen(), std::min(only.until, turn));
    now = ticks();
  } else {
    cpu::relax();
  }
  const bool thorough = now >= thorough_at_;
  if (thorough) thorough_at_ = now + from_us(kThoroughUs);
  for (std::size_t i = 0; i < entries_.size();) {
    Entry& entry = entries_[i];
    // relaxed: a hint; ready() looks properly.
    const bool changed = entry.watch->word().load(std::memory_order_relaxed) != entry.watch->seen();
    const bool over = now >= entry.until;
    const bool answered = ((changed || thorough) && entry.watch->ready()) || (over && entry.watch->announce());
    if (answered) {
      entry.completion->push(entry.token);
    } else if (!over) {
      ++i;
      continue;
    }
    entry = std::move(entries_.back());
    entries_.pop_back();
  }
}

}  // namespace aiospin::wait
