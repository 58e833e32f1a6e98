// Letting the event loop have its turn.
#include "bindings/turn.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace aiospin::bindings {

namespace {

// Twice this may pass: once until the callback is left, once more until it is missed.
constexpr double kTurnUs = 40;
// A part of it is never shorter, or coroutines that take turns would do little else.
constexpr double kLeastUs = 1;

PyObject* turn_taken(PyObject*, PyObject*) {
  Turn& turn = *this_turn();
  turn.asked = false;
  turn.crowd = std::max({1u, turn.begun, turn.crowd / 2});
  turn.begun = 0;
  turn.last = turn.iterated = ticks();
  turn.part = from_us(std::max(kLeastUs, kTurnUs / turn.crowd));
  Py_RETURN_NONE;
}

PyMethodDef turn_taken_method = {"turn_taken", turn_taken, METH_NOARGS, "The event loop of this thread has iterated."};
PyObject* turn_taken_callback;

// Leaves a callback with the loop. False with an exception set.
bool ask(Turn& turn) {
  const Ref loop(PyObject_CallNoArgs(classes.get_running_loop));
  if (!loop || !Ref(PyObject_CallMethodOneArg(loop.get(), names.call_soon, turn_taken_callback))) return false;
  turn.asked = true;
  ++turn.asks;
  return true;
}

}  // namespace

const std::shared_ptr<Turn>& this_turn() {
  thread_local const std::shared_ptr<Turn> turn = [] {
    auto made = std::make_shared<Turn>();
    made->part = from_us(kTurnUs);
    return made;
  }();
  return turn;
}

int owes_turn(Turn& turn) {
  const Ticks now = ticks();
  if (now - turn.last < turn.part) [[likely]]
    return 0;
  if (turn.asked) return 1;
  if (!ask(turn)) return -1;
  turn.last = now;
  return 0;
}

bool begin_turn(Turn& turn, unsigned asks) {
  const Ticks now = ticks(), before = std::exchange(turn.last, now);
  ++turn.begun;
  // What had been left with the loop when it stopped has run, unless it was another loop, which is gone.
  if (turn.asked && turn.asks == asks) turn.asked = false;
  const bool alone = turn.waiting == 0 && !turn.asked;
  if (alone || now - before > from_us(2 * kTurnUs)) {  // or the loop has been idle, or busy with something else
    turn.iterated = now;
    turn.begun = turn.crowd = 1;
    turn.part = from_us(kTurnUs);
    return true;
  }
  if (now - turn.iterated > from_us(2 * kTurnUs)) turn.part = from_us(kLeastUs);  // more are ready than were before
  return turn.asked || now - turn.iterated < from_us(kTurnUs) || ask(turn);
}

void give_no_turns() { this_turn()->part = std::numeric_limits<Ticks>::max(); }

bool make_turn(PyObject* module) {
  const Ref name(PyModule_GetNameObject(module));
  turn_taken_callback = name ? PyCFunction_NewEx(&turn_taken_method, nullptr, name.get()) : nullptr;
  return turn_taken_callback != nullptr;
}

}  // namespace aiospin::bindings
