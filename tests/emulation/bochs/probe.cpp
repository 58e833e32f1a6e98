// What the unit tests cannot say of a wait: that the CPU really slept, how long, and what woke it.
//
//   probe verdicts umwait= "mwaitx=CPUID reports no MONITORX" chosen=umwait     what became of trying each rung
//   probe faults waitpkg        instructions that this CPU lacks, and reserved bits, end a trial and nothing else
//   probe waits [ROUNDS]        every rung that this CPU has: stores by the other CPU, deadlines, both with figures
//   probe limit                 umwait under a limit of the OS, as root
//
// Guarantee: prints a line of figures for whatever it measured, and ends with status 1 after the first "FAILED".
// Assumption: two CPUs, and an emulator that counts ticks by instructions, so that figures in ticks say nothing of the
// host. Bochs sees a store to a monitored line only when the storing CPU has to look the page up, which a CPU does that
// has not touched it since the line was armed; so each store here is the first one through a mapping of its own.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cpu/rung.h"
#include "cpu/trial.h"
#include "cpu/waitpkg.h"
#include "platform/fd.h"

namespace {

using namespace aiospin;
using cpu::Ended;
using cpu::Rung;

[[noreturn]] void fail(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  std::exit(1);
}

void require(bool holds, const std::string& what) {
  if (!holds) fail(what);
}

// Bytes go out one interrupt each, and interrupts end waits: figures are printed when the measuring is done.
struct Figures {
  std::vector<Ticks> all;

  Ticks at(double share) {
    std::sort(all.begin(), all.end());
    return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
  }
};

void settle() {
  std::fflush(stdout);
  const Ticks until = ticks() + from_us(30'000);
  while (ticks() < until) sched_yield();
}

void pin(int number) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(number, &set);
  require(sched_setaffinity(0, sizeof set, &set) == 0, "there is no CPU " + std::to_string(number));
}

// A page that two sides map: the waiting one for reading only, as readers of a queue do.
class Shared {
 public:
  Shared() : file_(memfd_create("probe", MFD_CLOEXEC)) {
    require(file_.get() >= 0 && ftruncate(file_.get(), kBytes) == 0, "no shared memory");
    map(PROT_READ | PROT_WRITE)->store(0);  // the page is there from now on
    read_ = map(PROT_READ);
  }
  const Word& word() const { return *read_; }
  // Not yet touched through this mapping.
  Word& fresh() const { return *map(PROT_READ | PROT_WRITE); }

 private:
  static constexpr std::size_t kBytes = 4096;
  Word* map(int protection) const {
    void* at = mmap(nullptr, kBytes, protection, MAP_SHARED, file_.get(), 0);
    require(at != MAP_FAILED, "mmap");
    return static_cast<Word*>(at);
  }

  Fd file_;
  const Word* read_;
};

// ---- verdicts

int verdicts(const std::vector<std::string>& expected) {
  for (const cpu::Verdict& each : cpu::verdicts()) {
    std::printf("  %-7s %s\n", std::string(each.rung->name).c_str(), each.refusal.empty() ? "ok" : each.refusal.c_str());
  }
  std::printf("  chosen: %s\n", std::string(cpu::chosen().name).c_str());
  for (const std::string& pair : expected) {
    const std::string name = pair.substr(0, pair.find('=')), value = pair.substr(pair.find('=') + 1);
    std::string found = "there is no such rung";
    if (name == "chosen") found = cpu::chosen().name;
    for (const cpu::Verdict& each : cpu::verdicts()) {
      if (each.rung->name == name) found = each.refusal;
    }
    require(found == value, name + ": '" + found + "' instead of '" + value + "'");
  }
  for (const int number : {SIGILL, SIGSEGV, SIGBUS}) {
    struct sigaction now{};
    sigaction(number, nullptr, &now);
    require(now.sa_handler == SIG_DFL, "a trial left its handler of signal " + std::to_string(number));
  }
  return 0;
}

// ---- faults

void reserved_bit() noexcept { cpu::waitpkg::tpause(static_cast<cpu::waitpkg::State>(2), 0); }
void nothing_wrong() noexcept { cpu::waitpkg::tpause(cpu::waitpkg::State::c01, 0); }

int faults(bool has_waitpkg) {
  const std::string right = cpu::survives(nothing_wrong), wrong = cpu::survives(reserved_bit);
  std::printf("  tpause: '%s'; with a reserved bit: '%s'\n", right.c_str(), wrong.c_str());
  require(right == (has_waitpkg ? "" : "it raised SIGILL"), "tpause");
  require(wrong == (has_waitpkg ? "it raised SIGSEGV" : "it raised SIGILL"), "tpause with a reserved bit");
  return 0;
}

// ---- waits

struct Woken {
  Ticks late = 0;       // from before the store to after the wait
  unsigned waits = 0;   // executed until then
};

// This CPU waits, the other one stores `after` so many microseconds.
Woken remote_store(const Rung& rung, double after) {
  const Shared shared;
  Word& fresh = shared.fresh();
  std::atomic<bool> waiting{false};
  std::atomic<Ticks> stored{0};
  std::thread other([&] {
    pin(1);
    while (!waiting.load(std::memory_order_acquire)) {
    }
    const Ticks due = ticks() + from_us(after);
    while (ticks() < due) {
    }
    stored.store(ticks(), std::memory_order_relaxed);
    fresh.store(1, std::memory_order_release);
  });
  Woken woken;
  const Ticks until = ticks() + from_us(60e6);
  waiting.store(true, std::memory_order_release);
  Ended ended = Ended::empty;
  while (ended == Ended::empty) {
    ended = rung.wait(shared.word(), 0, until);
    ++woken.waits;
  }
  const Ticks now = ticks();
  other.join();
  require(ended == Ended::changed, "a store did not end the wait");
  require(shared.word().load(std::memory_order_acquire) == 1, "the wait ended as changed before the store");
  woken.late = now - stored.load(std::memory_order_relaxed);
  return woken;
}

void stores(const Rung& rung, unsigned rounds) {
  // The kernel's tick, which ends any wait, comes every 40,000 ticks; so of waits that the store does not end, a quarter
  // happens to end so soon. The writer's page fault is in it.
  constexpr Ticks kSoon = 10'000;
  Figures late;
  unsigned waits = 0, soon = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const Woken woken = remote_store(rung, 500.0 * (1 + round % 7));
    late.all.push_back(woken.late);
    waits += woken.waits;
    soon += woken.late < kSoon ? 1 : 0;
  }
  std::printf("  %-7s %u stores by the other CPU: seen after %llu ticks at best, %llu at p50, %llu at worst; %.1f waits each\n",
              std::string(rung.name).c_str(), rounds, static_cast<unsigned long long>(late.at(0)),
              static_cast<unsigned long long>(late.at(0.5)), static_cast<unsigned long long>(late.at(1)),
              static_cast<double>(waits) / rounds);
  require(soon * 4 >= rounds * 3, std::string(rung.name) + ": stores did not end the waits; something else did");
}

void deadlines(const Rung& rung) {
  const Shared shared;
  std::string line;
  for (const double us : {0.0, 10.0, 100.0, 1'000.0, 20'000.0}) {
    const Ticks begun = ticks(), until = begun + from_us(us);
    unsigned waits = 0;
    Ended ended = Ended::empty;
    while (ended == Ended::empty) {
      ended = rung.wait(shared.word(), 0, until);
      ++waits;
    }
    const Ticks now = ticks();
    require(ended == Ended::deadline, "an untouched word counts as changed");
    require(now >= until, "it ended before its deadline");
    // Awake, a hundred instructions each, it would take thousands.
    require(!rung.monitors() || waits < 100, std::string(rung.name) + " does not sleep: it came back " +
                                                 std::to_string(waits) + " times");
    line += "; " + std::to_string(static_cast<int>(us)) + " us +" + std::to_string(now - until) + " in " +
            std::to_string(waits);
  }
  std::printf("  %-7s deadlines, ticks past them and waits%s\n", std::string(rung.name).c_str(), line.c_str());
  // Whatever is past or has changed ends it at once; a wait without an end would hang here.
  require(rung.wait(shared.word(), 1, ~Ticks{0}) == Ended::changed, "a word that had changed");
  require(rung.wait(shared.word(), 0, 0) == Ended::deadline, "a deadline that was past");
}

int waits(unsigned rounds) {
  pin(0);
  for (const cpu::Verdict& each : cpu::verdicts()) {
    if (!each.refusal.empty()) continue;
    settle();
    deadlines(*each.rung);
    settle();
    stores(*each.rung, rounds);
  }
  return 0;
}

// ---- limit

constexpr const char* kControl = "/sys/devices/system/cpu/umwait_control/";

void set(const char* name, unsigned value) {
  std::ofstream file(std::string(kControl) + name);
  file << value << std::flush;
  require(file.good(), std::string("cannot set ") + name);
}

// Waits for nothing for 200,000 ticks; how many waits it took.
unsigned empty_waits(const Rung& rung) {
  const Shared shared;
  const Ticks until = ticks() + 200'000;
  unsigned count = 0;
  while (rung.wait(shared.word(), 0, until) != Ended::deadline) ++count;
  require(ticks() >= until, "it ended before its deadline");
  return count;
}

int limit() {
  const Rung& umwait = cpu::usable("umwait");
  pin(0);
  std::string line;
  for (const unsigned deep : {1u, 0u}) {
    set("enable_c02", deep);
    for (const unsigned most : {100'000u, 20'000u, 4'000u}) {
      set("max_time", most);
      settle();
      const unsigned count = empty_waits(umwait);
      line += "; " + std::to_string(most) + (deep ? "" : " without C0.2") + ": " + std::to_string(count);
      // Interrupts only add to it. What a wait takes beyond the limit is a few hundred instructions.
      require(count >= 200'000 / (most + 2'000), "the limit of " + std::to_string(most) + " did not end the waits");
    }
  }
  std::printf("  umwait armed again within 200,000 ticks, by limit%s\n", line.c_str());

  // So low a limit leaves hardly a sleep; the store is seen all the same.
  set("max_time", 100);
  settle();
  std::printf("  under a limit of 100: %u times\n", empty_waits(umwait));
  stores(umwait, 8);
  set("max_time", 100'000);
  set("enable_c02", 1);

  // CF tells a wait that the limit ended from one at its deadline. Nothing here depends on it: Bochs 3.0 leaves it clear.
  const Shared shared;
  unsigned flagged = 0;
  for (int i = 0; i < 20; ++i) {
    umwait.arm(shared.word());
    flagged += cpu::waitpkg::umwait(cpu::waitpkg::State::c01, ticks() + 10'000'000) ? 1 : 0;
  }
  std::printf("  waits that the limit ended and CF says so: %u of 20\n", flagged);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const std::string what = words.empty() ? "" : words[0];
  int status = 2;
  if (what == "verdicts") status = verdicts({words.begin() + 1, words.end()});
  if (what == "faults") status = faults(words.size() > 1 && words[1] == "waitpkg");
  if (what == "waits") status = waits(words.size() > 1 ? static_cast<unsigned>(std::stoul(words[1])) : 20);
  if (what == "limit") status = limit();
  if (status == 2) std::printf("FAILED: '%s' is none of verdicts, faults, waits, limit\n", what.c_str());
  return status;
}
