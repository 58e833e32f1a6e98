// What acquire hands out: ReadSlot, the Lease that its views keep alive, and WriteSlot.
//
// A read slot owns its bytes until somebody looks at them through a view; from then on a Lease owns them, and the slot
// and every view hold the lease. The bytes go back to the ring when the lease dies, that is, with the last view.
#pragma once

#include "bindings/reader.h"
#include "bindings/writer.h"

namespace aiospin::bindings {

PyObject* new_read_slot(ReaderObject* reader, const queue::Slot& slot);
// The end of a `with`: drops the slot's own hold, whatever views there are. Never raises.
void leave_read_slot(PyObject* slot);

// `bytes` lie in the ring, or are private (malloc) when the message is larger than the ring.
PyObject* new_write_slot(WriterObject* writer, std::byte* bytes, std::uint64_t size, bool is_private);
// Both end the claim. Publishing private bytes waits in the calling thread when there is no room.
bool publish_write_slot(PyObject* slot);
void abort_write_slot(PyObject* slot);
// For `async with`: ends the claim of private bytes and returns the operation that sends them; null with no exception
// when it was published at once.
PyObject* publish_write_slot_async(PyObject* slot);

bool make_read_slot_types(PyObject* module);
bool make_slot_types(PyObject* module);

}  // namespace aiospin::bindings
