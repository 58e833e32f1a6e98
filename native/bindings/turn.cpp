// Letting the event loop have its turn.
#include "bindings/turn.h"

namespace aiospin::bindings {

namespace {

// Twice this may pass: once until the callback is left, once more until it is missed.
constexpr double kTurnUs = 40;

PyObject* turn_taken(PyObject*, PyObject*) {
  Turn& turn = *this_turn();
  turn.asked = false;
  turn.crowd = turn.yields == 0 ? 1 : turn.yields;
  turn.yields = 0;
  turn.last = ticks();
  Py_RETURN_NONE;
}

PyMethodDef turn_taken_method = {"turn_taken", turn_taken, METH_NOARGS, "The event loop of this thread has iterated."};
PyObject* turn_taken_callback;

}  // namespace

const std::shared_ptr<Turn>& this_turn() {
  thread_local const std::shared_ptr<Turn> turn = std::make_shared<Turn>();
  return turn;
}

int owes_turn(Turn& turn) {
  const Ticks now = ticks();
  if (now - turn.last < from_us(kTurnUs / turn.crowd)) [[likely]]
    return 0;
  if (turn.asked) {
    ++turn.yields;
    return 1;
  }
  const Ref loop(PyObject_CallNoArgs(classes.get_running_loop));
  if (!loop) return -1;
  if (!Ref(PyObject_CallMethodOneArg(loop.get(), names.call_soon, turn_taken_callback))) return -1;
  turn.asked = true;
  ++turn.asks;
  turn.last = now;
  return 0;
}

void begin_turn(Turn& turn, unsigned asks) {
  turn.last = ticks();
  // What had been left with the loop by then has run, unless it was another loop, which is gone.
  if (turn.asked && turn.asks == asks) turn.asked = false;
}

bool make_turn(PyObject* module) {
  const Ref name(PyModule_GetNameObject(module));
  turn_taken_callback = name ? PyCFunction_NewEx(&turn_taken_method, nullptr, name.get()) : nullptr;
  return turn_taken_callback != nullptr;
}

}  // namespace aiospin::bindings
