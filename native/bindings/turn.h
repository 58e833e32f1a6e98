// Whose turn it is in an event loop's thread.
//
// A coroutine whose messages are always ready never suspends, and would keep timers, sockets and other tasks waiting.
// So one that has gone on for 40 to 80 us since the loop's last real iteration gives it one. The iteration is observed, not
// guessed: when the stamp is old, a callback is left with the loop; if it has not run when the stamp is old again, the
// loop is being starved. Several coroutines that are ready in one iteration share that time: each has a part of it, by how
// many there were in the iteration before, and the least when there are more than that. So an iteration takes
// little more than one step of each.
#pragma once

#include <memory>

#include "bindings/python.h"
#include "platform/clock.h"

namespace aiospin::bindings {

struct Turn {
  Ticks iterated = 0;      // the loop was seen to, or presumed to
  Ticks last = 0;          // then, or when a coroutine began its part of this iteration
  Ticks part = 0;          // how long that is
  unsigned waiting = 0;    // operations suspended in this thread's loop
  unsigned begun = 0;      // coroutines that went on since the loop was seen to iterate
  unsigned crowd = 1;      // how many did in the iteration before
  unsigned asks = 0;       // callbacks that were left with a loop
  bool asked = false;      // the latest has not run
};

// This thread's.
const std::shared_ptr<Turn>& this_turn();

// Must the caller let the loop iterate before it takes what is ready? -1 with an exception set.
int owes_turn(Turn& turn);
// A coroutine goes on in an iteration of the loop after the one in which it stopped, when `asks` callbacks had been left.
// False with an exception set.
bool begin_turn(Turn& turn, unsigned asks);

// For counting instructions: what is ready in this thread takes all the time there is, and clocks do not matter.
void give_no_turns();

bool make_turn(PyObject* module);

}  // namespace aiospin::bindings
