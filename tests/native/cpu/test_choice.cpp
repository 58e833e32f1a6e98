// Which rung a process waits with: what the CPU reports, what a trial shows, and how a rung that does not wait is demoted.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "../forked.h"
#include "../usable.h"
#include "cpu/features.h"
#include "cpu/rung.h"
#include "cpu/trial.h"

namespace {

using namespace aiospin;
using cpu::Ended;

TEST_CASE("the best usable rung is chosen, until another is") {
  const auto usable = rig::usable_rungs();
  CHECK(&cpu::chosen() == usable.front());
  cpu::choose(*usable.back());
  CHECK(&cpu::chosen() == usable.back());
  cpu::choose(*usable.front());
}

TEST_CASE("every rung of the build has one verdict, and the last can always be used") {
  const auto verdicts = cpu::verdicts();
  for (const cpu::Verdict& each : verdicts) {
    if (each.refusal.empty()) {
      CHECK(&cpu::usable(each.rung->name) == each.rung);
    } else {
      CHECK_THROWS_WITH_AS(
          cpu::usable(each.rung->name),
          ("'" + std::string(each.rung->name) + "' cannot be used here: " + each.refusal).c_str(), std::invalid_argument);
    }
  }
  CHECK(verdicts.back().rung->name == "yield");
  CHECK(verdicts.back().refusal.empty());
  CHECK(cpu::verdicts().data() == verdicts.data());  // tried once
}

TEST_CASE("a name that no rung here has is refused, with those that there are") {
#if defined(__aarch64__)
  const char* elsewhere = "'umwait' is not a rung of this kind of CPU; there are wfet, wfe, sb, isb, yield";
  CHECK_THROWS_WITH_AS(cpu::usable("umwait"), elsewhere, std::invalid_argument);
#else
  CHECK_THROWS_WITH_AS(cpu::usable("wfet"), doctest::Contains("'wfet' is not a rung of this kind of CPU; there are"),
                       std::invalid_argument);
#endif
  CHECK_THROWS_WITH_AS(cpu::usable("fast"), doctest::Contains("'fast' is not a rung; there are"), std::invalid_argument);
  CHECK_THROWS_AS(cpu::usable(""), std::invalid_argument);
}

TEST_CASE("what the CPU reports can be corrected, and nothing else") {
  cpu::Features found;
  found.monitorx = true;
  found.largest_line = 64;
  const cpu::Features corrected = cpu::corrected(found, "+waitpkg,-monitorx,nonsense,+unknown,,+");
  CHECK(corrected.waitpkg);
  CHECK_FALSE(corrected.monitorx);
  CHECK_FALSE(corrected.wfxt);
  CHECK(corrected.largest_line == 64);
  CHECK(cpu::corrected(found, "").monitorx);
  CHECK(cpu::corrected(found, "-monitorx,+monitorx").monitorx);
}

// ---- the trial

void do_nothing() noexcept {}
void execute_what_is_no_instruction() noexcept {
#if defined(__x86_64__)
  asm volatile("ud2");
#else
  asm volatile(".inst 0x00000000");
#endif
}
void* the_closed_page = nullptr;
void read_a_closed_page() noexcept { static_cast<void>(*static_cast<volatile const char*>(the_closed_page)); }

TEST_CASE("a trial that comes back says nothing, and one that faults says how") {
  CHECK(cpu::survives(do_nothing) == "");
  CHECK(cpu::survives(execute_what_is_no_instruction) == "it raised SIGILL");
  the_closed_page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(the_closed_page != MAP_FAILED);
  CHECK(cpu::survives(read_a_closed_page) == "it raised SIGSEGV");
  munmap(the_closed_page, 4096);
  CHECK(cpu::survives(do_nothing) == "");
}

TEST_CASE("the handlers of before are there again after a trial") {
  struct sigaction own{}, before{}, after{};
  own.sa_handler = [](int) {};
  own.sa_flags = SA_RESTART;
  sigaction(SIGILL, &own, &before);
  cpu::survives(execute_what_is_no_instruction);
  sigaction(SIGILL, &before, &after);
  const bool restored = after.sa_handler == own.sa_handler;
  CHECK(restored);
  CHECK((after.sa_flags & SA_RESTART) != 0);
}

std::atomic<int> the_step{0};

TEST_CASE("a fault of another thread during a trial goes to the handler of before") {
  static std::atomic<int> served{0};
  struct sigaction own{}, before{};
  own.sa_handler = [](int) { served.fetch_add(1); };
  sigaction(SIGILL, &own, &before);
  std::thread other([] {
    while (the_step.load() == 0) std::this_thread::yield();
    pthread_kill(pthread_self(), SIGILL);
    the_step.store(2);
  });
  const std::string verdict = cpu::survives([]() noexcept {
    the_step.store(1);
    while (the_step.load() != 2) std::this_thread::yield();
  });
  other.join();
  sigaction(SIGILL, &before, nullptr);
  CHECK(verdict == "");
  CHECK(served.load() == 1);
}

TEST_CASE("a signal that somebody sends during a trial is no fault of the instruction") {
  static std::atomic<int> served{0};
  struct sigaction own{}, before{};
  own.sa_handler = [](int) { served.fetch_add(1); };
  sigaction(SIGILL, &own, &before);
  const std::string verdict = cpu::survives([]() noexcept { raise(SIGILL); });
  sigaction(SIGILL, &before, nullptr);
  CHECK(verdict == "");
  CHECK(served.load() == 1);
}

TEST_CASE("a signal that nobody handles ends the process, during a trial as at other times") {
  const int status = rig::forked([] {
    cpu::survives([]() noexcept { raise(SIGSEGV); });
    return 0;
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

// ---- demotion

std::atomic<int> the_calls{0};
Ended come_back_at_once(const Word&, std::uint64_t, Ticks) noexcept {
  the_calls.fetch_add(1);
  return Ended::empty;
}
Ended wait_for_the_deadline(const Word&, std::uint64_t, Ticks until) noexcept {
  the_calls.fetch_add(1);
  while (ticks() < until) {
  }
  return Ended::deadline;
}
void arm_nothing(const Word&) noexcept {}
void doze_never(Ticks) noexcept {}

// A thread has its own opinion of its rung.
template <typename Act>
void in_a_fresh_thread(Act act) {
  std::thread(act).join();
}

TEST_CASE("a monitor that keeps coming back for nothing is not asked again for a while") {
  in_a_fresh_thread([] {
    const cpu::Rung useless{"useless", nullptr, come_back_at_once, arm_nothing, doze_never};
    const Word word{0};
    the_calls = 0;
    for (int i = 0; i < 1'000; ++i) cpu::idle(useless, word, 0, ticks() + from_us(1));
    CHECK(the_calls.load() < 500);  // each time that it is asked again, 16 times
    const int before = the_calls.load();
    const Ticks until = ticks() + from_us(60'000);
    while (ticks() < until) cpu::idle(useless, word, 0, until);
    CHECK(the_calls.load() > before);  // but it is, later
  });
}

TEST_CASE("a demoted rung's wait still ends by a store and by its deadline") {
  in_a_fresh_thread([] {
    const cpu::Rung useless{"useless", nullptr, come_back_at_once, arm_nothing, doze_never};
    Word word{0};
    for (int i = 0; i < 200; ++i) cpu::idle(useless, word, 0, ticks() + from_us(1));
    Ended ended = Ended::empty;
    const Ticks until = ticks() + from_us(200);
    while (ended == Ended::empty) ended = cpu::idle(useless, word, 0, until);
    CHECK(ended == Ended::deadline);
    CHECK(ticks() >= until);
    std::thread storing([&] { word.store(1); });
    while (word.load() == 0) cpu::idle(useless, word, 0, ticks() + from_us(60e6));
    storing.join();
  });
}

TEST_CASE("a monitor that waits is never demoted") {
  in_a_fresh_thread([] {
    const cpu::Rung good{"good", nullptr, wait_for_the_deadline, arm_nothing, doze_never};
    const Word word{0};
    the_calls = 0;
    for (int i = 0; i < 200; ++i) CHECK(cpu::idle(good, word, 0, ticks() + from_us(1)) == Ended::deadline);
    CHECK(the_calls.load() == 200);
  });
}

}  // namespace
