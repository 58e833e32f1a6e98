// Which rung this process waits with.
#include "cpu/rung.h"

namespace aiospin::cpu {

namespace {

constexpr const Rung* kRungs[] = {&kPauseRung};
const Rung* the_rung = kRungs[0];

}  // namespace

std::span<const Rung* const> rungs() noexcept { return kRungs; }

const Rung& chosen() noexcept { return *the_rung; }

bool choose(std::string_view name) noexcept {
  for (const Rung* rung : kRungs) {
    if (rung->name != name) continue;
    the_rung = rung;
    return true;
  }
  return false;
}

}  // namespace aiospin::cpu
