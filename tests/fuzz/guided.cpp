// The same executions, steered by a coverage-guided engine (libFuzzer) instead of by a seed.
//
// Takes the place of main.cpp in a program linked with -fsanitize=fuzzer.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "execution.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace aiospin;
  static fuzz::Arena small(1, rig::kPageBytes), wide(2, 2 * rig::kPageBytes), odd(1, 3 * rig::kPageBytes);
  static fuzz::Tally tally;
  fuzz::Choices choose({bytes, size});
  fuzz::Arena* const arenas[] = {&small, &wide, &odd};
  fuzz::execute(*arenas[choose.below(3)], choose, false, tally);
  return 0;
}
