// A task that sleeps on its reader's bell, without a step of Python in between.
#pragma once

#include "bindings/operation.h"
#include "bindings/reader.h"

namespace aiospin::bindings {

enum class Parking : std::uint8_t {
  elsewhere,  // not here: ask the Python half
  parked,     // announced; `future` is resolved by the bell
  ready,      // what it waits for came while it announced
  failed,     // an exception is set
};
Parking park_here(OperationObject* self, Ref& future);
// The operation no longer waits, for whatever reason. Does nothing if it had not parked here.
void leave_parking(OperationObject* self);

// Lets the parked operation attempt again. 1 when there is one, 0 when not, -1 with an exception set. The loop's thread.
int wake_parked(Endpoint* self);
// The callback for the bell's descriptor in a loop; refers weakly to the endpoint.
PyObject* new_bell_callback(Endpoint* self);

bool make_parking_types(PyObject* module);

}  // namespace aiospin::bindings
