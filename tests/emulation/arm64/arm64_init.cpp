// The first and only program of a booted arm64 kernel: which rungs are there, and do they wait? Told on the console.
//
// One line per fact, each beginning with a word that arm64_boot.py knows: FEATURES, RUNG, TRIAL, WAIT; the last is END.
// A kernel's verdict on hwcaps is asked here, since user-mode emulation makes up its own.
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "cpu/features.h"
#include "cpu/rung.h"

namespace {

using namespace aiospin;

void say_features() {
  const cpu::Features& found = cpu::features();
  std::printf("FEATURES evtstrm=%d wfxt=%d sb=%d line=%u\n", found.evtstrm, found.wfxt, found.sb, found.largest_line);
}

void say_verdicts(const char* what) {
  for (const cpu::Verdict& each : cpu::verdicts()) {
    std::printf("%s %s: %s\n", what, std::string(each.rung->name).c_str(),
                each.refusal.empty() ? "usable" : each.refusal.c_str());
  }
}

// In a process of its own, which believes in all features: what becomes of an instruction that the CPU lacks.
void try_without_hwcaps() {
  const pid_t child = fork();
  if (child == 0) {
    setenv("AIOSPIN_CPU_FEATURES", "+wfxt,+evtstrm,+sb", 1);
    say_verdicts("TRIAL");
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::printf("TRIAL ended with status %#x\n", static_cast<unsigned>(status));
}

// Two threads wait for each other's stores.
void wait_with(const cpu::Rung& rung) {
  constexpr std::uint64_t kTurns = 200;
  Word ping{0}, pong{0};
  const auto await = [&](const Word& word, std::uint64_t seen) {
    while (word.load(std::memory_order_acquire) == seen) cpu::idle(rung, word, seen, ticks() + from_us(1e6));
  };
  std::thread other([&] {
    for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
      await(ping, turn - 1);
      pong.store(turn, std::memory_order_release);
    }
  });
  for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
    ping.store(turn, std::memory_order_release);
    await(pong, turn - 1);
  }
  other.join();
  const Ticks until = ticks() + from_us(3000);
  const Word still{1};
  while (ticks() < until) cpu::idle(rung, still, 1, until);
  std::printf("WAIT %s: woken, and ended in time\n", std::string(rung.name).c_str());
}

}  // namespace

int main() {
  try_without_hwcaps();  // first: what was found is kept
  say_features();
  say_verdicts("RUNG");
  for (const cpu::Verdict& each : cpu::verdicts()) {
    if (each.refusal.empty()) wait_with(*each.rung);
  }
  std::printf("END %s\n", std::string(cpu::chosen().name).c_str());
  std::fflush(stdout);
  sync();
  reboot(RB_POWER_OFF);
}
