// Which rungs this CPU has, which one this process waits with, and what becomes of one that does not keep its word.
#include "cpu/rung.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "cpu/conduct.h"

namespace aiospin::cpu {

namespace {

// Best first. A core that sleeps until the store saves more than one that looks, and both more than one that spins.
constexpr const Rung* kRungs[] = {
#if defined(__x86_64__)
    &kUmwaitRung, &kMwaitxRung, &kTpauseRung, &kPauseRung,
#elif defined(__aarch64__)
    &kWfetRung, &kWfeRung, &kSbRung, &kIsbRung,
#endif
    &kYieldRung,
};
// For an error that says more than "unknown".
constexpr std::string_view kElsewhere[] = {"umwait", "mwaitx", "tpause", "pause", "wfet", "wfe", "sb", "isb"};

std::atomic<const Rung*> the_rung{nullptr};

template <typename Accept>
const Rung& first(Accept accept) {
  const auto all = verdicts();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Verdict& each) {
    return each.refusal.empty() && accept(*each.rung);
  });
  return found == all.end() ? kYieldRung : *found->rung;
}

// Of this thread: the word, its line and the CPU are another matter for each.
thread_local Conduct the_conduct;

}  // namespace

std::span<const Verdict> verdicts() {
  static const std::vector<Verdict> all = [] {
    std::vector<Verdict> found;
    for (const Rung* rung : kRungs) found.push_back({rung, rung->refusal()});
    return found;
  }();
  return all;
}

const Rung& chosen() noexcept {
  // relaxed: rungs are constants.
  const Rung* rung = the_rung.load(std::memory_order_relaxed);
  if (rung != nullptr) return *rung;
  static const Rung& best = first([](const Rung&) { return true; });
  return best;
}

const Rung& breather() noexcept {
  static const Rung& found = first([](const Rung& each) { return !each.monitors(); });
  return found;
}

const Rung& usable(std::string_view name) {
  std::string known;
  for (const Verdict& each : verdicts()) {
    if (each.rung->name == name) {
      if (each.refusal.empty()) return *each.rung;
      throw std::invalid_argument("'" + std::string(name) + "' cannot be used here: " + each.refusal);
    }
    known += (known.empty() ? "" : ", ") + std::string(each.rung->name);
  }
  const bool elsewhere = std::find(std::begin(kElsewhere), std::end(kElsewhere), name) != std::end(kElsewhere);
  throw std::invalid_argument("'" + std::string(name) + "' is not a rung" +
                              (elsewhere ? " of this kind of CPU" : "") + "; there are " + known);
}

void choose(const Rung& rung) noexcept {
  // relaxed: as above.
  the_rung.store(&rung, std::memory_order_relaxed);
}

Ended idle(const Rung& rung, const Word& word, std::uint64_t seen, Ticks until) noexcept {
  if (!rung.monitors()) return rung.wait(word, seen, until);
  Conduct& conduct = the_conduct;
  const Ticks begun = ticks();
  if (!conduct.may_doze(begun)) {
    const Ended ended = breather().wait(word, seen, std::min(until, conduct.demoted_until()));
    return ended == Ended::deadline && ticks() < until ? Ended::empty : ended;
  }
  const Ended ended = rung.wait(word, seen, until);
  if (ended == Ended::empty) {
    conduct.ended_for_nothing(begun, ticks());
  } else {
    conduct.ended_for_a_reason();
  }
  return ended;
}

}  // namespace aiospin::cpu
