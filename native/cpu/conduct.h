// What a thread has seen of its monitor, and whether to doze with it next time.
//
// A hypervisor may make the instruction a no-op, and others may store to the line all the time. So dozes that came back
// for nothing, several in a row and each within a short time, demote the monitor for a while; then it is tried again.
#pragma once

#include "platform/clock.h"

namespace aiospin::cpu {

class Conduct {
 public:
  bool may_doze(Ticks now) const noexcept { return now >= demoted_until_; }
  Ticks demoted_until() const noexcept { return demoted_until_; }

  void ended_for_a_reason() noexcept { pointless_ = 0; }
  void ended_for_nothing(Ticks begun, Ticks now) noexcept {
    if (now - begun >= from_us(kPointlessUs)) {
      pointless_ = 0;
    } else if (++pointless_ == kPatience) {
      pointless_ = 0;
      demoted_until_ = now + from_us(kDemotedUs);
    }
  }

 private:
  // The limit of the OS ends a doze after 33 us and more, which is no misconduct.
  static constexpr double kPointlessUs = 20, kDemotedUs = 10'000;
  static constexpr unsigned kPatience = 16;

  unsigned pointless_ = 0;
  Ticks demoted_until_ = 0;
};

}  // namespace aiospin::cpu
