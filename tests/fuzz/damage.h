// What a stray or hostile writer does to a segment: single fields, fields that agree with each other, plain scribbles.
//
// Assumption: nothing; it writes whatever it likes, to the shared bytes only.
#pragma once

#include "arena.h"
#include "choices.h"

namespace aiospin::fuzz {

// Damages the segment once.
void damage(const Arena& arena, Choices& choose) noexcept;

// A value near one that matters: the ends of the range, of the ring, what was there.
std::uint64_t nasty(Choices& choose, std::uint64_t old, std::uint64_t capacity) noexcept;

}  // namespace aiospin::fuzz
