// QueueReader's native base: the calls whose cost is measured in nanoseconds.
#pragma once

#include "bindings/endpoint.h"
#include "queue/reader.h"

namespace aiospin::bindings {

struct ReaderObject : Endpoint {
  queue::Reader* core;
  unsigned long long leases;  // slots handed out and not given back
  unsigned long long views;   // of these, slots that were left while views of them live
};

inline ReaderObject* as_reader(Endpoint* self) { return static_cast<ReaderObject*>(self); }
inline const ReaderObject* as_reader(const Endpoint* self) { return static_cast<const ReaderObject*>(self); }
inline Endpoint* as_endpoint(PyObject* self) { return reinterpret_cast<Endpoint*>(self); }

// Who writes: the seat's tenure and flags, which change with every claim.
inline std::uint64_t seat_of_writer(const ReaderObject* self) {
  // relaxed: compared with an earlier load of the same word, and with nothing else.
  return self->core->segment().control().writer.seat.state.load(std::memory_order_relaxed);
}

// One look. `done`: the slot is counted as a lease of the reader.
Attempt take(ReaderObject* self, queue::Slot& slot);
// The end of a lease: the bytes go back to the ring, or the slot goes back to be handed out again.
void release(ReaderObject* self, const queue::Slot& slot);
void give_back(ReaderObject* self, const queue::Slot& slot);

// Attempts behind the public calls; `result` is a new reference when done.
Attempt attempt_slot(ReaderObject* self, PyObject** result);
Attempt attempt_get(ReaderObject* self, PyObject** result);
Attempt attempt_get_up_to(ReaderObject* self, std::uint64_t most, PyObject** result);
Attempt attempt_get_many(ReaderObject* self, Py_ssize_t most, PyObject** result);

}  // namespace aiospin::bindings
