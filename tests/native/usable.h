// The rungs that this CPU has, or is made to have (AIOSPIN_CPU_FEATURES under an emulator).
#pragma once

#include <string>
#include <vector>

#include "cpu/rung.h"

namespace aiospin::rig {

inline std::vector<const cpu::Rung*> usable_rungs() {
  std::vector<const cpu::Rung*> found;
  for (const cpu::Verdict& each : cpu::verdicts()) {
    if (each.refusal.empty()) found.push_back(each.rung);
  }
  return found;
}

// Runs the rest of the test case once for each of them: `for_each_rung([](const cpu::Rung& rung) { ... })`.
template <typename Check>
void for_each_rung(Check check) {
  const auto rungs = usable_rungs();
  REQUIRE(!rungs.empty());
  for (const cpu::Rung* rung : rungs) {
    const std::string name(rung->name);
    CAPTURE(name);
    check(*rung);
  }
}

}  // namespace aiospin::rig
