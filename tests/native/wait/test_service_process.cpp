// The waiter thread in its process: no signal is delivered to it, and a forked child has a service of its own.
#include <dirent.h>
#include <doctest/doctest.h>
#include <poll.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "../forked.h"
#include "wait/service.h"
#include "wait/word_watch.h"

namespace {

using namespace aiospin;
using wait::Comparison;
using wait::Completion;
using wait::Service;
using wait::WordWatch;

constexpr std::uint64_t kAll = ~std::uint64_t{0};

// Submits a watch, stores to its word, and waits for the token. Afterwards the thread is there.
bool answers() {
  const auto completion = std::make_shared<Completion>();
  Word word{0};
  WordWatch watch(word, Comparison::equal, 1, kAll);
  Service::instance().submit(watch, completion, 42, ticks() + from_us(600e6));
  word.store(1);
  pollfd wake{completion->fileno(), POLLIN, 0};
  return poll(&wake, 1, 30'000) == 1 && completion->pop() == std::vector<wait::Token>{42};
}

// The SigBlk lines of this process's threads of the waiter's name, as numbers.
std::vector<std::uint64_t> blocked_by_waiters() {
  std::vector<std::uint64_t> masks;
  DIR* const tasks = opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  while (const dirent* task = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    std::string name, line;
    std::ifstream(folder + "/comm") >> name;
    if (name != "aiospin-waiter") continue;
    std::ifstream status(folder + "/status");
    while (std::getline(status, line)) {
      if (line.starts_with("SigBlk:")) masks.push_back(std::stoull(line.substr(7), nullptr, 16));
    }
  }
  closedir(tasks);
  return masks;
}

TEST_CASE("the thread blocks every signal that can be, and its starter's mask is as before") {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  REQUIRE(answers());
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  const std::vector<std::uint64_t> masks = blocked_by_waiters();
  REQUIRE(masks.size() == 1);
  for (int signal = 1; signal < SIGRTMAX; ++signal) {
    CAPTURE(signal);
    CHECK(sigismember(&before, signal) == sigismember(&after, signal));
    const bool refusable = signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN);
    if (refusable) CHECK((masks.front() >> (signal - 1) & 1) == 1);
  }
}

TEST_CASE("there is one thread, however many watches and loops there were") {
  for (int i = 0; i < 10; ++i) REQUIRE(answers());
  CHECK(blocked_by_waiters().size() == 1);
}

TEST_CASE("a forked child has a service of its own, without its parent's watches; the parent's goes on") {
  const auto completion = std::make_shared<Completion>();
  Word word{0};
  WordWatch watch(word, Comparison::equal, 1, kAll);
  Service* const ours = &Service::instance();
  ours->submit(watch, completion, 7, ticks() + from_us(600e6));
  for (int generation = 0; generation < 3; ++generation) {
    const int status = rig::forked([&] {
      if (&Service::instance() == ours) return 1;
      if (Service::instance().cancel(watch)) return 2;
      if (!answers()) return 3;
      // A grandchild gets a new one again.
      Service* const childs = &Service::instance();
      return rig::forked([&] { return &Service::instance() != childs && answers() ? 0 : 4; }) == 0 ? 0 : 5;
    });
    CHECK(status == 0);
  }
  CHECK(&Service::instance() == ours);
  CHECK(completion->pop().empty());
  word.store(1);
  pollfd wake{completion->fileno(), POLLIN, 0};
  CHECK(poll(&wake, 1, 30'000) == 1);
  CHECK(completion->pop() == std::vector<wait::Token>{7});
}

}  // namespace
