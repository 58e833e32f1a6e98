#include "platform/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "platform/fd.h"

namespace aiospin {

std::uint64_t run_delay_ns() noexcept {
  const Fd file(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t n = read(file.get(), text, sizeof text - 1);
  if (n <= 0) return 0;
  text[n] = '\0';
  unsigned long long running, waiting;
  return std::sscanf(text, "%llu %llu", &running, &waiting) == 2 ? waiting : 0;
}

}  // namespace aiospin
