// How long a wait watches before it parks: arithmetic only, the clock is an argument.
//
// The horizon H answers a ski-rental problem (rent: watch; buy: park, whose price is one kernel wake-up). Watching for
// as long as a park costs is never worse than twice the better of always-watch and always-park (Karlin et al., 1988);
// the adaptation to recent waits is the rule of the kernel's halt-polling governor, grown towards twice the wait that
// was seen instead of by a fixed factor, and started at a quarter of the ceiling.
#pragma once

#include <cstdint>

#include "cpu/rung.h"

namespace aiospin::wait {

struct Tuning {
  double minimum_us = 0;     // H never falls below
  double maximum_us = 0;     // H never rises above; 0: the measured price of a park
  double inline_us = 20;     // the longest wait in an event loop's own thread
  double core_share = 0.25;  // of one core, for watching; 1: no budget
  bool parks = true;         // false: watch for ever
  const cpu::Rung* rung = nullptr;  // what watching idles with; null: the process's choice
};

class Horizon {
 public:
  explicit Horizon(const Tuning& tuning) noexcept;

  // A wait is over: how long after its start was it answered, less what waking took.
  void observe(double wait_us, bool rang = false) noexcept;
  // A park is over: what waking took.
  void observe_park(double cost_us) noexcept;
  // Watching went on for so long, ending now.
  void spend(double watched_us, double now_us) noexcept;
  // How many roles are played, on how many CPUs. With more of the former, watching steals the time of whom it waits for.
  void seat(unsigned roles) noexcept { crowded_ = roles > cpus_; }
  // The share of the last moments in which a waiting thread was runnable and did not run: others need its core.
  void observe_run_delay(double share) noexcept { delayed_ = share > 0.1; }
  void set_cpus(unsigned cpus) noexcept { cpus_ = cpus; }
  unsigned cpus() const noexcept { return cpus_; }
  bool crowded() const noexcept { return crowded_; }
  bool delayed() const noexcept { return delayed_; }

  // What to do with a wait that starts now. Infinity when it never parks.
  double horizon_us(double now_us) noexcept;
  // The median of the last eight waits was short enough to wait in place.
  bool due() const noexcept;
  // How long to wait in place when due. `rang`: this process has just woken a peer, whose answer comes after one
  // wake-up. Both sides of a conversation would otherwise take each other's wake-up for a slow answer, and park for
  // ever; so such a wait may be longer by a wake-up, and counts as shorter by one.
  double inline_us(bool rang = false) const noexcept;

  double park_cost_us() const noexcept { return park_cost_us_; }
  const Tuning& tuning() const noexcept { return tuning_; }

 private:
  double ceiling() const noexcept;
  double wake_allowance_us() const noexcept;

  const Tuning tuning_;
  double horizon_us_;
  double park_cost_us_ = 15;  // until the first park tells
  double budget_us_;
  double budget_at_us_ = -1;
  std::uint8_t short_waits_ = 0xff;  // one bit per recent wait: it was short
  unsigned cpus_ = 1;
  bool crowded_ = false;
  bool delayed_ = false;
};

}  // namespace aiospin::wait
