// Time-outs as Python gives them: None for ever, 0 to poll once, else seconds.
#pragma once

#include "bindings/python.h"
#include "platform/clock.h"

namespace aiospin::bindings {

struct Deadline {
  double seconds = -1;  // as given; negative for none
  Ticks at = 0;         // set by start()

  bool limited() const noexcept { return seconds >= 0; }
  bool polls() const noexcept { return seconds == 0; }
  void start(Ticks now) noexcept {
    if (limited()) at = now + from_us(seconds * 1e6);
  }
  bool passed(Ticks now) const noexcept { return limited() && now >= at; }
  Ticks earlier(Ticks other) const noexcept { return limited() && at < other ? at : other; }
  double remaining_s(Ticks now) const noexcept { return now >= at ? 0 : to_us(at - now) / 1e6; }
};

// Raises TypeError for what is not a number, ValueError for a negative one or NaN. `object` may be null: none given.
bool parse_timeout(PyObject* object, Deadline& deadline);

// The only keyword that the hot calls know is `timeout`; `positional` says how many positional arguments precede it, and
// whether it may itself be positional. Returns false with TypeError set.
bool take_timeout(const char* call, PyObject* const* args, Py_ssize_t nargs, PyObject* keywords, Py_ssize_t positional,
                  bool keyword_only, Deadline& deadline);

}  // namespace aiospin::bindings
