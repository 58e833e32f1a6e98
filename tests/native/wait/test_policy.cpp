// The horizon: bounded, collapsing, and never far from the better of always-watch and always-park.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "wait/policy.h"

namespace {

using aiospin::wait::Horizon;
using aiospin::wait::Tuning;

constexpr double kParkUs = 15;

TEST_CASE("the horizon stays within its bounds, whatever was seen") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-2, 7);
  Horizon horizon(Tuning{.minimum_us = 2, .maximum_us = 100, .core_share = 1});
  for (int i = 0; i < 20'000; ++i) {
    horizon.observe(std::pow(10.0, exponent(random)));
    const double now = horizon.horizon_us(i * 1000.0);
    REQUIRE(now >= 2);
    REQUIRE(now <= 100);
  }
}

TEST_CASE("long waits end in parking at once, and short ones bring watching back") {
  Horizon horizon(Tuning{.core_share = 1});
  for (int i = 0; i < 50; ++i) horizon.observe(5'000);
  CHECK(horizon.horizon_us(0) == 0);
  CHECK_FALSE(horizon.due());
  for (int i = 0; i < 50; ++i) horizon.observe(3);
  CHECK(horizon.horizon_us(0) >= 3);
  CHECK(horizon.due());
}

TEST_CASE("a crowd ends watching, and its end brings it back") {
  Horizon horizon(Tuning{.core_share = 1});
  for (int i = 0; i < 50; ++i) horizon.observe(3);
  horizon.seat(2);
  CHECK(horizon.horizon_us(0) == 0);
  CHECK_FALSE(horizon.due());
  horizon.seat(1);
  CHECK(horizon.horizon_us(0) > 0);
  CHECK(horizon.due());
}

TEST_CASE("a run queue that delays us ends watching, and its end brings it back; short waits in place go on") {
  Horizon horizon(Tuning{.core_share = 1});
  for (int i = 0; i < 50; ++i) horizon.observe(3);
  horizon.observe_run_delay(0.5);
  CHECK(horizon.delayed());
  CHECK(horizon.horizon_us(0) == 0);
  CHECK(horizon.due());
  horizon.observe_run_delay(0.01);
  CHECK_FALSE(horizon.delayed());
  CHECK(horizon.horizon_us(0) > 0);
}

TEST_CASE("roles crowd when there are more of them than CPUs") {
  Horizon horizon(Tuning{});
  for (const unsigned cpus : {1u, 2u, 7u}) {
    horizon.set_cpus(cpus);
    for (unsigned roles = 0; roles < 10; ++roles) {
      horizon.seat(roles);
      CHECK(horizon.crowded() == (roles > cpus));
    }
  }
}

TEST_CASE("waiting in place is due while half of the last eight waits were short") {
  Horizon horizon(Tuning{.inline_us = 10, .core_share = 1});
  CHECK(horizon.due());
  for (int i = 0; i < 8; ++i) horizon.observe(10.5);
  CHECK_FALSE(horizon.due());
  for (int i = 1; i <= 8; ++i) {
    horizon.observe(10);
    CHECK(horizon.due() == (i >= 4));
  }
  for (int i = 1; i <= 8; ++i) {
    horizon.observe(11);
    CHECK(horizon.due() == (i <= 4));
  }
}

TEST_CASE("waiting in place lasts no longer than a park costs") {
  Horizon slow(Tuning{.inline_us = 20}), quick(Tuning{.inline_us = 5});
  CHECK(slow.inline_us() == 15);  // until a park was measured
  for (int i = 0; i < 200; ++i) slow.observe_park(60);
  CHECK(slow.inline_us() == 20);
  CHECK(quick.inline_us() == 5);
}

TEST_CASE("at a cadence of 5 ms nothing is watched, and one quick burst does not change that for long") {
  Horizon horizon(Tuning{});
  double now = 0;
  for (int i = 0; i < 20; ++i) horizon.observe(5'000);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) horizon.observe(4);
    for (int i = 0; i < 6; ++i) horizon.observe(5'000);
    CHECK(horizon.horizon_us(now += 5'000) == 0);
  }
}

TEST_CASE("a floor under the horizon holds, unless the budget is spent") {
  Horizon floored(Tuning{.minimum_us = 50, .maximum_us = 200, .core_share = 1});
  for (int i = 0; i < 100; ++i) floored.observe(1e6);
  CHECK(floored.horizon_us(0) == 50);
  Horizon poor(Tuning{.minimum_us = 50, .maximum_us = 200, .core_share = 0.1});
  CHECK(poor.horizon_us(0) == 50);
  poor.spend(10'000, 0);
  CHECK(poor.horizon_us(0) == 0);
  CHECK(poor.horizon_us(1'000) == 0);
  CHECK(poor.horizon_us(200'000) == 50);
}

TEST_CASE("a clock that stands still earns no budget") {
  Horizon horizon(Tuning{.core_share = 0.25});
  horizon.spend(1'999, 1'000);
  for (int i = 0; i < 10; ++i) CHECK(horizon.horizon_us(1'000) == 1);
  CHECK(horizon.horizon_us(1'004) == 2);
}

TEST_CASE("a policy that never parks watches for ever") {
  Horizon horizon(Tuning{.parks = false});
  for (int i = 0; i < 50; ++i) horizon.observe(1e9);
  CHECK(std::isinf(horizon.horizon_us(0)));
}

TEST_CASE("watching uses no more than its share of a core in the long run") {
  Horizon horizon(Tuning{.core_share = 0.25});
  double now = 0, watched = 0;
  for (int i = 0; i < 200'000; ++i) {
    horizon.observe(10);
    const double spent = std::min(horizon.horizon_us(now), 10.0);
    now += 11;
    horizon.spend(spent, now);
    watched += spent;
  }
  CHECK(watched <= 0.25 * now + 3'000);
  CHECK(watched >= 0.1 * now);
}

// What a sequence of waits costs: watching until the horizon, then a park.
double cost(Horizon& horizon, const std::vector<double>& waits) {
  double total = 0;
  for (const double wait : waits) {
    const double patience = horizon.horizon_us(0);
    total += wait <= patience ? wait : patience + kParkUs;
    horizon.observe(wait);
  }
  return total;
}

TEST_CASE("never worse than twice the better of always watching and always parking") {
  std::mt19937 random(42);
  std::exponential_distribution<double> short_gaps(1.0 / 4), long_gaps(1.0 / 4'000);
  const std::size_t count = 20'000;
  std::vector<std::vector<double>> traffic;
  for (const double period : {1.0, 5.0, 12.0, 14.0, 16.0, 30.0, 200.0, 5'000.0}) traffic.emplace_back(count, period);
  traffic.emplace_back(count);
  for (double& wait : traffic.back()) wait = short_gaps(random);
  traffic.emplace_back(count);
  for (double& wait : traffic.back()) wait = long_gaps(random);
  traffic.emplace_back(count);  // bursts
  for (std::size_t i = 0; i < count; ++i) traffic.back()[i] = i % 50 == 0 ? 10'000 : 2;
  traffic.emplace_back(count);  // alternating
  for (std::size_t i = 0; i < count; ++i) traffic.back()[i] = i % 2 == 0 ? 3 : 3'000;
  for (std::size_t kind = 0; kind < traffic.size(); ++kind) {
    CAPTURE(kind);
    Horizon horizon(Tuning{.core_share = 1});
    double watching = 0, parking = 0;
    for (const double wait : traffic[kind]) {
      watching += wait;
      parking += kParkUs;
    }
    CHECK(cost(horizon, traffic[kind]) <= 2 * std::min(watching, parking) + 1'000);
  }
}

TEST_CASE("the price of a park is learned and clamped") {
  Horizon horizon(Tuning{});
  for (int i = 0; i < 200; ++i) horizon.observe_park(40);
  CHECK(horizon.park_cost_us() == doctest::Approx(40).epsilon(0.01));
  for (int i = 0; i < 200; ++i) horizon.observe_park(1e6);
  CHECK(horizon.park_cost_us() == doctest::Approx(65).epsilon(0.01));
  for (int i = 0; i < 200; ++i) horizon.observe_park(0);
  CHECK(horizon.park_cost_us() == doctest::Approx(15).epsilon(0.01));
}

}  // namespace
