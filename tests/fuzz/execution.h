// One execution: a writer and readers at work on a segment that is damaged between their steps, or under their hands.
//
// Guarantee: every decision comes from the Choices, so an execution without a racing thread can be repeated; it is a
// bounded number of steps. What must hold is checked by `must`, which ends the process with a line that says what did
// not: answers are among the legal ones, slots lie in the mapping, an end that has nothing to do sleeps instead of
// spinning, and closing ends every wait whatever the damage.
#pragma once

#include <array>
#include <cstdint>

#include "arena.h"
#include "choices.h"

namespace aiospin::fuzz {

// What the steps were answered with, to see that a campaign reaches them all.
struct Tally {
  std::array<std::uint64_t, 7> looks{};  // by queue::Look
  std::array<std::uint64_t, 4> rooms{};  // by queue::Room
  std::uint64_t takeovers = 0, refused = 0, damages = 0;

  void add(const Tally& other) noexcept;
};

// Runs one. `raced`: another thread damages the arena meanwhile, so only what holds at any moment is checked.
void execute(Arena& arena, Choices& choose, bool raced, Tally& tally);

}  // namespace aiospin::fuzz
