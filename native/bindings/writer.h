// QueueWriter's native base: claims, puts, and the sending of messages that are larger than the ring.
#pragma once

#include "bindings/endpoint.h"
#include "bindings/gather.h"
#include "queue/writer.h"

namespace aiospin::bindings {

struct WriterObject : Endpoint {
  queue::Writer* core;
  bool claimed;      // a WriteSlot is outstanding
  unsigned long claimant;  // the thread that claimed it
  bool threadsafe;   // a second thread waits for its turn instead of raising WriterBusy
  bool checksum;
};

inline WriterObject* as_writer(Endpoint* self) { return static_cast<WriterObject*>(self); }
inline const WriterObject* as_writer(const Endpoint* self) { return static_cast<const WriterObject*>(self); }

// One try at sending the rest of a message, from byte `progress` on; `progress` moves as fragments go out.
Attempt attempt_put(WriterObject* self, const Gather& message, std::uint64_t& progress);
// One try at sending payloads [next, n) of a sequence; what fits is published together.
Attempt attempt_put_many(WriterObject* self, PyObject* payloads, Py_ssize_t& next, std::uint64_t& progress);
// One try at claiming a slot of `size` bytes.
Attempt attempt_claim(WriterObject* self, std::uint64_t size, PyObject** result);

// Sends in the calling thread, waiting for room.
bool put_and_wait(WriterObject* self, const Gather& message, Deadline deadline);
// A claim is over: whoever waits for it goes on. Keeps an exception that is set.
void end_claim(WriterObject* self);

// No other thread or task is at it.
inline bool is_free(const WriterObject* self) { return !self->busy && !self->claimed && self->queued == 0; }
// For a threadsafe writer: waits until no other thread or task is at it. Elsewhere it does nothing.
bool take_turn(WriterObject* self, const Deadline& deadline);
// The writer may be free for another thread now.
void pass_turn(Endpoint* self);


}  // namespace aiospin::bindings
