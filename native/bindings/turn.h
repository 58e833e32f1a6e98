// Whose turn it is in an event loop's thread.
//
// A coroutine whose messages are always ready never suspends, and would keep timers, sockets and other tasks waiting.
// So one that has gone on for 40 to 80 us since the loop's last real iteration gives it one. The iteration is observed, not
// guessed: when the stamp is old, a callback is left with the loop; if it has not run when the stamp is old again, the
// loop is being starved.
#pragma once

#include <memory>

#include "bindings/python.h"
#include "platform/clock.h"

namespace aiospin::bindings {

struct Turn {
  Ticks last = 0;          // the loop was seen to iterate
  unsigned waiting = 0;    // operations suspended in this thread's loop
  bool asked = false;      // a callback is with the loop
};

// This thread's.
const std::shared_ptr<Turn>& this_turn();

// Must the caller let the loop iterate before it takes what is ready? -1 with an exception set.
int owes_turn(Turn& turn);

bool make_turn(PyObject* module);

}  // namespace aiospin::bindings
