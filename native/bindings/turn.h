// Whose turn it is in an event loop's thread.
//
// A coroutine whose messages are always ready never suspends, and would keep timers, sockets and other tasks waiting.
// So one that has gone on for 40 to 80 us since the loop's last real iteration gives it one. The iteration is observed, not
// guessed: when the stamp is old, a callback is left with the loop; if it has not run when the stamp is old again, the
// loop is being starved. Several coroutines that are always ready share one such turn: each has its part of it, as many as
// had to yield in the iteration before.
#pragma once

#include <memory>

#include "bindings/python.h"
#include "platform/clock.h"

namespace aiospin::bindings {

struct Turn {
  Ticks last = 0;          // the loop was seen to iterate, or a coroutine began its part of this iteration
  unsigned waiting = 0;    // operations suspended in this thread's loop
  unsigned yields = 0;     // coroutines that had to yield since the loop iterated
  unsigned crowd = 1;      // how many did in the iteration before, at least 1
  unsigned asks = 0;       // callbacks that were left with a loop
  bool asked = false;      // the latest has not run
};

// This thread's.
const std::shared_ptr<Turn>& this_turn();

// Must the caller let the loop iterate before it takes what is ready? -1 with an exception set.
int owes_turn(Turn& turn);
// A coroutine goes on in an iteration of the loop after the one in which it stopped, when `asks` callbacks had been left.
void begin_turn(Turn& turn, unsigned asks);

bool make_turn(PyObject* module);

}  // namespace aiospin::bindings
