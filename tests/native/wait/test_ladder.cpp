// One wait in the calling thread: watching sees what the watch calls ready, parking tells apart what ended it.
#include "wait/ladder.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <csignal>
#include <thread>

#include "../rig.h"
#include "wait/word_watch.h"

namespace {

using namespace aiospin;
using wait::Comparison;
using wait::EndpointWatch;
using wait::Woke;
using wait::WordWatch;

TEST_CASE("monitor sees a change, and gives up at its bound") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  const Ticks begun = ticks();
  CHECK_FALSE(wait::monitor(watch, begun + from_us(200)));
  CHECK(to_us(ticks() - begun) >= 199);
  std::thread other([&] {
    REQUIRE(rig::write(*writer, 8) == queue::Room::ready);
    writer->flush();
  });
  CHECK(wait::monitor(watch, ticks() + from_us(30e6)));
  other.join();
}

TEST_CASE("park tells the bell, another descriptor and the time-out apart") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  const rig::Bell other;
  pollfd descriptors[] = {{queue.bell(1), POLLIN, 0}, {other.get(), POLLIN, 0}};
  CHECK(wait::park(watch, descriptors, 1'000'000, nullptr) == wait::Woke::timeout);
  shm::doorbell::ring(other.get());
  CHECK(wait::park(watch, descriptors, -1, nullptr) == wait::Woke::other);
  shm::doorbell::drain(other.get());
  shm::doorbell::ring(queue.bell(1));
  CHECK(wait::park(watch, descriptors, -1, nullptr) == wait::Woke::bell);
  REQUIRE(rig::write(*writer, 8) == queue::Room::ready);
  writer->flush();
  CHECK(wait::park(watch, descriptors, -1, nullptr) == wait::Woke::ready);
}

TEST_CASE("a bell and another descriptor at once: both are told, the bell is drained") {
  rig::Rig queue;
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  const rig::Bell other;
  pollfd descriptors[] = {{queue.bell(1), POLLIN, 0}, {other.get(), POLLIN, 0}};
  shm::doorbell::ring(queue.bell(1));
  shm::doorbell::ring(other.get());
  CHECK(wait::park(watch, descriptors, -1, nullptr) == Woke::other);
  CHECK_FALSE(shm::doorbell::drain(queue.bell(1)));
  CHECK(shm::doorbell::drain(other.get()));
}

TEST_CASE("a park lasts at least its time, and each one announces itself anew") {
  rig::Rig queue;
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  pollfd descriptors[] = {{queue.bell(1), POLLIN, 0}};
  const Word& epoch = queue.segment().reader(0).park.epoch;
  for (std::uint64_t parks = 0; parks < 5; ++parks) {
    CHECK(epoch.load() == parks);
    const std::uint64_t begun = monotonic_ns();
    CHECK(wait::park(watch, descriptors, 2'000'000, nullptr) == Woke::timeout);
    CHECK(monotonic_ns() - begun >= 2'000'000);
  }
  CHECK(wait::park(watch, descriptors, 0, nullptr) == Woke::timeout);
}

extern "C" void note_signal(int) {}

TEST_CASE("a signal that came while blocked ends the park at once, if the mask lets it in") {
  rig::Rig queue;
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  pollfd descriptors[] = {{queue.bell(1), POLLIN, 0}};
  struct sigaction action {}, old_action {};
  action.sa_handler = note_signal;
  REQUIRE(sigaction(SIGUSR2, &action, &old_action) == 0);
  sigset_t usr2, before;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &usr2, &before) == 0);
  REQUIRE(pthread_kill(pthread_self(), SIGUSR2) == 0);
  CHECK(wait::park(watch, descriptors, 1'000'000, nullptr) == Woke::timeout);  // still blocked
  CHECK(wait::park(watch, descriptors, -1, &before) == Woke::signal);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigaction(SIGUSR2, &old_action, nullptr);
}

TEST_CASE("a closed descriptor ends the park instead of hanging it") {
  rig::Rig queue;
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  const int closed = dup(queue.bell(1));
  close(closed);
  pollfd descriptors[] = {{queue.bell(1), POLLIN, 0}, {closed, POLLIN, 0}};
  CHECK(wait::park(watch, descriptors, -1, nullptr) == Woke::other);
}

TEST_CASE("monitor sees an end that does not touch the watched word") {
  rig::Rig queue;
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  std::thread other([&] { queue.segment().control().owner.shutdown.store(1); });
  CHECK(wait::monitor(watch, ticks() + from_us(60e6)));
  other.join();
}

TEST_CASE("monitor goes on when the word changes and the watch is not ready yet") {
  Word word{0};
  WordWatch watch(word, Comparison::at_least, 1'000, ~std::uint64_t{0});
  std::thread other([&] {
    for (int i = 0; i < 1'000; ++i) word.fetch_add(1);
  });
  CHECK(wait::monitor(watch, ticks() + from_us(60e6)));
  CHECK(word.load() >= 1'000);
  other.join();
}

TEST_CASE("a word is compared under its mask, as an unsigned number") {
  Word word{0};
  const auto ready = [&](std::uint64_t now, Comparison comparison, std::uint64_t value, std::uint64_t mask) {
    word.store(now);
    WordWatch watch(word, comparison, value, mask);
    CHECK(&watch.word() == &word);
    CHECK(watch.seen() == now);
    CHECK(watch.announce() == watch.ready());
    return watch.ready();
  };
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  CHECK(ready(5, Comparison::equal, 5, kAll));
  CHECK_FALSE(ready(5, Comparison::equal, 4, kAll));
  CHECK(ready(0xf5, Comparison::equal, 5, 0xf));
  CHECK(ready(5, Comparison::not_equal, 4, kAll));
  CHECK_FALSE(ready(0xf5, Comparison::not_equal, 5, 0xf));
  CHECK(ready(5, Comparison::at_least, 5, kAll));
  CHECK_FALSE(ready(4, Comparison::at_least, 5, kAll));
  CHECK(ready(kAll, Comparison::at_least, 5, kAll));
  CHECK(ready(4, Comparison::below, 5, kAll));
  CHECK_FALSE(ready(5, Comparison::below, 5, kAll));
  CHECK_FALSE(ready(kAll, Comparison::below, 5, kAll));
}

}  // namespace
