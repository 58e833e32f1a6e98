// The floors measure, end by themselves, and leave neither process nor descriptor behind.
#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cerrno>
#include <stdexcept>
#include <string>

#include "floor/floor.h"

namespace {

using namespace aiospin;

int descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST_CASE("a number bounces between two cache lines, or there are too few CPUs to try") {
  try {
    const std::vector<double> took = floor::bounce(3, 10);
    REQUIRE(took.size() == 3);
    for (const double each : took) CHECK(each > 0);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "needs two CPUs");
  }
}

TEST_CASE("a sleeper at the end of a pipe is woken and answers") {
  const int before = descriptors();
  const floor::Wakes wakes = floor::wake(10, 100'000);
  REQUIRE(wakes.one_way.size() == 10);
  REQUIRE(wakes.round_trip.size() == 10);
  for (std::size_t n = 0; n < 10; ++n) CHECK(wakes.one_way[n] <= wakes.round_trip[n]);
  CHECK(wakes.wall >= 1'000'000);
  CHECK(descriptors() == before);
  CHECK((waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD));
}

TEST_CASE("each of several sleepers is woken by a write of its own") {
  const int before = descriptors();
  const floor::Wakes wakes = floor::fan(4, 10, 0);
  CHECK(wakes.one_way.size() == 10);
  CHECK(wakes.write_cost.size() == 10);
  CHECK(descriptors() == before);
  CHECK((waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD));
}

TEST_CASE("copies go round the ring, whatever its size") {
  CHECK(floor::copy(20, 5000, 1 << 16) > 0);
  CHECK(floor::copy(20, 5000, 1) > 0);
}

}  // namespace
