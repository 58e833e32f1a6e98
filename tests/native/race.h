// Races, driven: one side is stopped at every instruction, and the other does all of its part there.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <functional>

#include "sanitized.h"
#include "stepper.h"

namespace aiospin::rig {

inline bool rung(int bell) {
  pollfd look{bell, POLLIN, 0};
  return poll(&look, 1, 0) == 1;
}

// One race: `stepped` runs in a child and stops at an instruction; `between` runs here; `stepped` ends; `after` judges.
struct Race {
  std::function<void()> stepped, between, after;
};

// Runs the race that `make` sets up anew for each instruction of its stepped side. Sanitizers make those many and each
// of them slow, so that their builds stop at some places only, evenly spread.
template <typename Make>
void at_every_instruction(Make make) {
  make().stepped();  // what is done once per process, such as binding a library's call, is then done
  std::size_t length = 0;
  {
    Stepped child(make().stepped);
    while (child.step()) ++length;
  }
  const std::size_t stride = kSlowdown == 1 ? 1 : length / 12 + 1;
  for (std::size_t place = 0; place < length + stride; place += stride) {
    const std::size_t at = std::min(place, length);  // the beginning and the end are always among them
    CAPTURE(at);
    Race race = make();
    {
      Stepped child(race.stepped);
      std::size_t step = 0;
      while (step < at && child.step()) ++step;
      race.between();
      while (step == at && child.step()) {
      }
    }
    race.after();
  }
}

}  // namespace aiospin::rig
