// Children for tests that must die, or must be another process.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "platform/error.h"

namespace aiospin::rig {

// Runs `act` in a forked child that exits with what it returns; returns the child's wait status. A child that hangs
// dies of SIGALRM. Faults end it as they would end a program without a sanitizer, and leave no core file.
template <typename Act>
int forked(Act act) {
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (const int fault : {SIGSEGV, SIGBUS, SIGABRT}) signal(fault, SIG_DFL);
    alarm(60);
    _exit(act());
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw_errno("waitpid");
  }
  return status;
}

}  // namespace aiospin::rig
