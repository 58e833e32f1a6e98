// The rung that every CPU has: look, breathe, look again.
#include "cpu/relax.h"
#include "cpu/rung.h"

namespace aiospin::cpu {

namespace {

void wait(const Word& word, std::uint64_t seen, Ticks until) noexcept {
  do {
    // Four looks per reading of the clock: a look costs a cache hit, the clock 10 ns.
    for (int look = 0; look < 4; ++look) {
      // relaxed: a change is only a hint; whoever acts on it loads the word again with acquire.
      if (word.load(std::memory_order_relaxed) != seen) return;
      relax();
    }
  } while (ticks() < until);
}

}  // namespace

const Rung kPauseRung{"pause", wait};

}  // namespace aiospin::cpu
