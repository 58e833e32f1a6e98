#include "platform/membarrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace aiospin::membarrier {

namespace {
bool call(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }
}  // namespace

bool enroll() noexcept { return call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED); }
bool everywhere() noexcept { return call(MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

}  // namespace aiospin::membarrier
