// Threads that share one writer, created with threadsafe=True, stand in line here.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "bindings/writer.h"

namespace aiospin::bindings {

namespace {

// One place for all writers: contention here means that threads are waiting for shared memory anyway.
std::mutex line;
std::condition_variable moved;

constexpr auto kSignalChunk = std::chrono::milliseconds(50);

}  // namespace

bool take_turn(WriterObject* self, const Deadline& given) {
  // The first use opens the writer, and only then says whether it is shared.
  if (!self->opened && !enter(self)) return false;
  if (!self->threadsafe || is_free(self)) [[likely]]
    return true;
  if (self->claimed && self->claimant == PyThread_get_thread_ident()) {
    raise_busy(self);  // this very thread holds the claim, and would wait for itself
    return false;
  }
  Deadline deadline = given;
  deadline.start(ticks());
  while (!is_free(self)) {
    if (deadline.passed(ticks())) {
      raise_timeout(self, deadline, "turn");
      return false;
    }
    // The line is locked before the GIL is dropped: whoever frees the writer holds the GIL, and then has to wait for this
    // thread to be asleep before it can notify.
    line.lock();
    Py_BEGIN_ALLOW_THREADS;
    {
      std::unique_lock<std::mutex> hold(line, std::adopt_lock);
      moved.wait_for(hold, kSignalChunk);
    }
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() < 0) return false;
  }
  return true;
}

void pass_turn(Endpoint* self) {
  if (self->rank >= 0 || !as_writer(self)->threadsafe) [[likely]]
    return;
  {
    const std::lock_guard<std::mutex> hold(line);
  }
  moved.notify_all();
}

}  // namespace aiospin::bindings
