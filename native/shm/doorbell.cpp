#include "shm/doorbell.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "platform/probe.h"

namespace aiospin::shm::doorbell {

void ring(int bell) noexcept {
  const char byte = 1;
  // Only a signal can interrupt a non-blocking write of one byte; every other failure leaves nothing to do here, and
  // the sleeper's bounded nap stands behind it.
  while (write(bell, &byte, 1) < 0 && errno == EINTR) {
  }
}

bool drain(int bell) noexcept {
  char bytes[512];
  bool any = false;
  AIOSPIN_PROBE(drain);
  for (;;) {
    const ssize_t n = read(bell, bytes, sizeof bytes);
    if (n > 0) any = true;
    if (n == static_cast<ssize_t>(sizeof bytes) || (n < 0 && errno == EINTR)) continue;
    return any;
  }
}

}  // namespace aiospin::shm::doorbell
