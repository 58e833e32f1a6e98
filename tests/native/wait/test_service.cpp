// Completion, ladder and service with real threads: what is pushed arrives, what is awaited ends, what is cancelled is
// left alone.
#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "../rig.h"
#include "shm/doorbell.h"
#include "wait/completion.h"
#include "wait/ladder.h"
#include "wait/service.h"

namespace {

using namespace aiospin;
using wait::Completion;
using wait::EndpointWatch;
using wait::Service;
using wait::Token;

// Pops until `count` tokens are there, asleep on the eventfd in between as a loop would be.
std::vector<Token> collect(Completion& completion, std::size_t count) {
  std::vector<Token> tokens;
  while (tokens.size() < count) {
    pollfd wake{completion.fileno(), POLLIN, 0};
    REQUIRE(poll(&wake, 1, 30'000) == 1);
    for (const Token token : completion.pop()) tokens.push_back(token);
  }
  return tokens;
}

TEST_CASE("no token is left behind a loop that sleeps") {
  constexpr std::size_t kThreads = 3, kEach = 20'000;
  Completion completion;
  std::vector<std::thread> pushers;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    pushers.emplace_back([&, thread] {
      for (std::size_t i = 0; i < kEach; ++i) completion.push(thread * kEach + i);
    });
  }
  const std::vector<Token> tokens = collect(completion, kThreads * kEach);
  for (std::thread& pusher : pushers) pusher.join();
  std::vector<bool> seen(kThreads * kEach);
  for (const Token token : tokens) {
    REQUIRE_FALSE(seen[token]);
    seen[token] = true;
  }
  CHECK(completion.pop().empty());
}

TEST_CASE("a ring stays until it is drained, and a full pipe is rung") {
  const rig::Bell bell;
  CHECK_FALSE(shm::doorbell::drain(bell.get()));
  for (int i = 0; i < 100'000; ++i) shm::doorbell::ring(bell.get());
  CHECK(shm::doorbell::drain(bell.get()));
  CHECK_FALSE(shm::doorbell::drain(bell.get()));
}

TEST_CASE("a watch is answered by the service, or parked and rung") {
  rig::Rig queue;
  const auto writer = queue.writer();
  const auto reader = queue.reader();
  EndpointWatch watch(*reader);
  const auto completion = std::make_shared<Completion>();
  for (Token token = 0; token < 2'000; ++token) {
    const bool parks = token % 3 == 0;
    Service::instance().submit(watch, completion, token, parks ? ticks() : ticks() + from_us(1e6));
    REQUIRE(rig::write(*writer, 8) == queue::Room::ready);
    writer->flush();
    // Either the token or the bell comes; both may.
    pollfd either[] = {{completion->fileno(), POLLIN, 0}, {queue.bell(1), POLLIN, 0}};
    REQUIRE(poll(either, 2, 30'000) >= 1);
    Service::instance().cancel(watch);
    for (const Token answered : completion->pop()) CHECK(answered == token);
    shm::doorbell::drain(queue.bell(1));
    queue::Slot slot;
    REQUIRE(reader->take(slot) == queue::Look::ready);
    CHECK(rig::intact(slot));
    reader->release(slot);
  }
}

TEST_CASE("after cancel the thread does not touch the watch") {
  rig::Rig queue;
  const auto completion = std::make_shared<Completion>();
  for (Token token = 0; token < 500; ++token) {
    const auto reader = queue.reader();
    EndpointWatch watch(*reader);
    Service::instance().submit(watch, completion, token, ticks() + from_us(1e6));
    CHECK(Service::instance().cancel(watch));
    CHECK_FALSE(Service::instance().cancel(watch));
  }
  CHECK(completion->pop().empty());
}

TEST_CASE("many watches are all answered") {
  constexpr std::uint32_t kReaders = 64;
  rig::Rig queue(kReaders);
  const auto writer = queue.writer();
  std::vector<std::unique_ptr<queue::Reader>> readers;
  std::vector<std::unique_ptr<EndpointWatch<queue::Reader>>> watches;
  const auto completion = std::make_shared<Completion>();
  for (std::uint32_t rank = 0; rank < kReaders; ++rank) {
    readers.push_back(queue.reader(rank));
    watches.push_back(std::make_unique<EndpointWatch<queue::Reader>>(*readers.back()));
    Service::instance().submit(*watches.back(), completion, rank, ticks() + from_us(30e6));
  }
  REQUIRE(rig::write(*writer, 8) == queue::Room::ready);
  writer->flush();
  CHECK(collect(*completion, kReaders).size() == kReaders);
}

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

}  // namespace
