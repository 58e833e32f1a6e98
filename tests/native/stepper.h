// Stops a piece of code at every one of its stores to shared memory, as a SIGKILL could.
//
// A child runs the code one instruction at a time (ptrace(2), PTRACE_SINGLESTEP); whenever the watched bytes have
// changed, the parent looks. So every state that a killed process can leave behind is seen, in program order, and no
// seam in the code is needed. The child's private state is its own: the caller's objects stay as they were before.
// Assumption: the watched bytes are shared with the child, and atomics are single instructions (x86-64; arm64 with LSE:
// a loop of exclusive loads and stores never ends when stepped, and the bound on the steps then fails the test).
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "platform/error.h"

namespace aiospin::rig {

class Stepped {
 public:
  template <typename Act>
  explicit Stepped(Act act) : pid_(fork()) {
    if (pid_ < 0) throw_errno("fork");
    if (pid_ == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
      kill(getpid(), SIGSTOP);
      act();
      kill(getpid(), SIGSTOP);
      _exit(0);
    }
    if (wait() != SIGSTOP) throw std::runtime_error("the child could not be traced");
  }
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;
  ~Stepped() {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // One instruction more; false when the code is over.
  bool step() {
    if (++steps_ > 20'000'000) throw std::runtime_error("the code does not end");
    if (ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) != 0) throw_errno("ptrace");
    switch (const int signal = wait()) {
      case SIGTRAP:
        return true;
      case SIGSTOP:
        return false;
      default:
        throw std::runtime_error("the child met " + std::string(strsignal(signal)));
    }
  }

 private:
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0) {
      if (errno != EINTR) throw_errno("waitpid");
    }
    if (!WIFSTOPPED(status)) throw std::runtime_error("the child ended");
    return WSTOPSIG(status);
  }

  const pid_t pid_;
  std::size_t steps_ = 0;
};

// Runs `act` in a child, and `look` here at the beginning and after every change of `watched`. Returns the number of
// looks.
template <typename Act, typename Look>
std::size_t at_every_store(std::span<const std::byte> watched, Act act, Look look) {
  Stepped child(act);
  std::vector<std::byte> before(watched.begin(), watched.end());
  std::size_t looks = 1;
  look();
  while (child.step()) {
    if (std::memcmp(before.data(), watched.data(), watched.size()) == 0) continue;
    before.assign(watched.begin(), watched.end());
    ++looks;
    look();
  }
  return looks;
}

}  // namespace aiospin::rig
