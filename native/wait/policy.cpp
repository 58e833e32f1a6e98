#include "wait/policy.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace aiospin::wait {

namespace {
// A kernel wake-up costs 5 to 6 us hot and up to 65 us from idle on a guest; what lies outside is noise.
constexpr double kLeastParkUs = 15, kMostParkUs = 65;
// Watching may run ahead of its share by this much, so that one burst is not cut in half.
constexpr double kBudgetUs = 2000;
// Below this, handing the wait on costs more than the watching could save.
constexpr double kWorthwhileUs = 1;
}  // namespace

Horizon::Horizon(const Tuning& tuning) noexcept : tuning_(tuning), horizon_us_(0), budget_us_(kBudgetUs) {
  horizon_us_ = std::max(tuning_.minimum_us, ceiling() / 4);
}

double Horizon::ceiling() const noexcept {
  return std::max(tuning_.minimum_us, tuning_.maximum_us > 0 ? tuning_.maximum_us : park_cost_us_);
}

void Horizon::observe(double wait_us, bool rang) noexcept {
  if (rang) wait_us = std::max(0.0, wait_us - wake_allowance_us());
  short_waits_ = static_cast<std::uint8_t>((short_waits_ << 1) | (wait_us <= inline_us() ? 1 : 0));
  const double most = ceiling();
  if (wait_us <= horizon_us_) {
    horizon_us_ += (std::clamp(2 * wait_us, tuning_.minimum_us, most) - horizon_us_) / 8;
  } else if (wait_us <= most) {
    horizon_us_ = std::min(most, std::max(2 * horizon_us_, most / 4));
  } else {
    horizon_us_ = std::max(tuning_.minimum_us, horizon_us_ / 2);
  }
}

void Horizon::observe_park(double cost_us) noexcept {
  park_cost_us_ += (std::clamp(cost_us, kLeastParkUs, kMostParkUs) - park_cost_us_) / 8;
}

void Horizon::spend(double watched_us, double now_us) noexcept {
  if (budget_at_us_ >= 0) {
    budget_us_ = std::min(kBudgetUs, budget_us_ + std::max(0.0, now_us - budget_at_us_) * tuning_.core_share);
  }
  budget_at_us_ = now_us;
  if (tuning_.core_share < 1) budget_us_ -= watched_us;
}

double Horizon::horizon_us(double now_us) noexcept {
  if (!tuning_.parks) return std::numeric_limits<double>::infinity();
  spend(0, now_us);
  // Short waits in place go on under pressure, since they end before anybody could use the core; long ones do not.
  if (crowded_ || delayed_ || budget_us_ <= 0 || horizon_us_ < kWorthwhileUs) return 0;
  return std::min(horizon_us_, budget_us_);
}

double Horizon::inline_us(bool rang) const noexcept {
  const double limit = std::min(tuning_.inline_us, park_cost_us_);
  return rang && limit > 0 ? limit + wake_allowance_us() : limit;
}

// What a peer's wake-up may take: half as much again as ours did, since wake-ups vary.
double Horizon::wake_allowance_us() const noexcept { return 1.5 * park_cost_us_; }

bool Horizon::due() const noexcept { return !crowded_ && std::popcount(short_waits_) >= 4; }

}  // namespace aiospin::wait
