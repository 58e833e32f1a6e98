// The bell alone: a ring stays until it is drained, and neither side ever blocks or raises a signal.
#include "shm/doorbell.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <thread>

#include "../forked.h"
#include "../rig.h"

namespace {

using namespace aiospin;

bool rung(int bell) {
  pollfd look{bell, POLLIN, 0};
  return poll(&look, 1, 0) == 1;
}

TEST_CASE("a ring stays until it is drained") {
  const rig::Bell bell;
  CHECK_FALSE(rung(bell.get()));
  CHECK_FALSE(shm::doorbell::drain(bell.get()));
  shm::doorbell::ring(bell.get());
  CHECK(rung(bell.get()));
  CHECK(rung(bell.get()));
  CHECK(shm::doorbell::drain(bell.get()));
  CHECK_FALSE(rung(bell.get()));
  CHECK_FALSE(shm::doorbell::drain(bell.get()));
}

TEST_CASE("a full pipe counts as rung, and one drain empties it") {
  const rig::Bell bell;
  for (int i = 0; i < 100'000; ++i) shm::doorbell::ring(bell.get());
  CHECK(shm::doorbell::drain(bell.get()));
  CHECK_FALSE(rung(bell.get()));
}

TEST_CASE("numbers of rings around the size of one read are all drained") {
  const rig::Bell bell;
  for (const int rings : {1, 511, 512, 513, 1024, 1500}) {
    CAPTURE(rings);
    for (int i = 0; i < rings; ++i) shm::doorbell::ring(bell.get());
    CHECK(shm::doorbell::drain(bell.get()));
    CHECK_FALSE(rung(bell.get()));
  }
}

TEST_CASE("a bell that nobody else holds, or that is none, raises no signal") {
  const int status = rig::forked([] {
    const rig::Bell bell;
    shm::doorbell::ring(bell.get());
    shm::doorbell::ring(-1);
    return shm::doorbell::drain(bell.get()) && !shm::doorbell::drain(-1) ? 0 : 1;
  });
  CHECK(status == 0);
}

TEST_CASE("announcements of two threads are all counted") {
  constexpr std::uint64_t kEach = 50'000;
  Word epoch{7};
  const auto announce = [&] {
    for (std::uint64_t i = 0; i < kEach; ++i) shm::doorbell::announce(epoch);
  };
  std::thread other(announce);
  announce();
  other.join();
  CHECK(shm::doorbell::heard(epoch) == 7 + 2 * kEach);
}

}  // namespace
