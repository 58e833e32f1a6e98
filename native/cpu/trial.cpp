#include "cpu/trial.h"

#include <csetjmp>
#include <csignal>
#include <iterator>
#include <mutex>

#include "platform/clock.h"

namespace aiospin::cpu {

namespace {

// #UD, #GP (a reserved bit), and a page that is not there.
constexpr int kFaults[] = {SIGILL, SIGSEGV, SIGBUS};
constexpr const char* kNames[] = {"SIGILL", "SIGSEGV", "SIGBUS"};
constexpr std::size_t kCount = std::size(kFaults);

struct sigaction the_before[kCount];
// Where a fault of the thread that tries goes on; null in all others.
thread_local sigjmp_buf* the_escape = nullptr;

std::size_t index(int number) noexcept {
  std::size_t i = 0;
  while (i + 1 < kCount && kFaults[i] != number) ++i;
  return i;
}

void on_fault(int number, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by somebody: no fault of what this thread does
  if (the_escape != nullptr && !sent) siglongjmp(*the_escape, number);
  const struct sigaction& other = the_before[index(number)];
  if ((other.sa_flags & SA_SIGINFO) != 0 && other.sa_sigaction != nullptr) {
    other.sa_sigaction(number, info, context);
  } else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) {
    other.sa_handler(number);
  } else if (!sent || other.sa_handler == SIG_DFL) {
    std::signal(number, SIG_DFL);  // the fault comes again when this returns, and kills
    if (sent) raise(number);       // and a signal that was sent comes again then
  }
}

class Handlers {
 public:
  Handlers() noexcept {
    struct sigaction ours{};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // Known before they are needed: a signal may come in the moment in which ours is in place.
    for (std::size_t i = 0; i < kCount; ++i) sigaction(kFaults[i], nullptr, &the_before[i]);
    for (const int fault : kFaults) sigaction(fault, &ours, nullptr);
  }
  ~Handlers() {
    for (std::size_t i = 0; i < kCount; ++i) sigaction(kFaults[i], &the_before[i], nullptr);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;
};

// The signal that ended it, or 0.
int attempt_here(void (*attempt)() noexcept) noexcept {
  sigjmp_buf escape;
  const int number = sigsetjmp(escape, 1);
  if (number == 0) {
    the_escape = &escape;
    attempt();
  }
  the_escape = nullptr;
  return number;
}

}  // namespace

std::string survives(void (*attempt)() noexcept) {
  ticks_per_us();  // before: an attempt that is cut short in the middle of measuring it would leave it locked
  static std::mutex one_at_a_time;
  const std::lock_guard hold(one_at_a_time);
  sigset_t others, mask;
  sigfillset(&others);
  for (const int fault : kFaults) sigdelset(&others, fault);
  pthread_sigmask(SIG_SETMASK, &others, &mask);  // an application's handlers do not run in the trial
  int number;
  {
    const Handlers handlers;
    number = attempt_here(attempt);
  }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  return number == 0 ? "" : std::string("it raised ") + kNames[index(number)];
}

}  // namespace aiospin::cpu
