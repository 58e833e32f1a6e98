// How late the waiter thread sees a store, by how many words it watches, and how it might watch many:
//
//   turns      what native/wait/service.cpp does: with several watches a short breath, then a look at each
//   due        the alternative: doze on the word that is due for as long as a turn may last, then a look at each
//
// Each is measured with the best rung of this machine, on a word that is due (the one that is dozed on) and on another.
// A rung that is no monitor sees stores to its word only, too, so the comparison means the same with it.
//
//   python3 tests/native/build.py --cxx g++ --mode plain --program measure
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "cpu/relax.h"
#include "cpu/rung.h"
#include "platform/cacheline.h"

namespace {

using namespace aiospin;

constexpr int kStores = 4'000;
constexpr double kDozeUs = 5;  // as in native/wait/service.cpp

struct alignas(kLine) Line {
  Word word{0};
};

// Watches all words until `stop`; what it sees changed it answers in `seen`, with the tick.
void watch(std::vector<Line>& lines, bool doze_on_due, Word& answered, std::atomic<bool>& stop) {
  std::vector<std::uint64_t> last(lines.size(), 0);
  while (!stop.load(std::memory_order_relaxed)) {
    if (doze_on_due) {
      cpu::idle(cpu::chosen(), lines[0].word, last[0], ticks() + from_us(kDozeUs));
    } else {
      cpu::relax();
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::uint64_t now = lines[i].word.load(std::memory_order_acquire);
      if (now == last[i]) continue;
      last[i] = now;
      answered.store(ticks(), std::memory_order_release);
    }
  }
}

void measure(std::size_t words, bool doze_on_due, bool store_to_due) {
  std::vector<Line> lines(words);
  Line answered;
  std::atomic<bool> stop{false};
  std::thread watching([&] { watch(lines, doze_on_due, answered.word, stop); });
  std::minstd_rand random(7);
  std::vector<double> late;
  for (int i = 0; i < kStores; ++i) {
    const Ticks pause = ticks() + from_us(static_cast<double>(random() % 200) / 10);
    while (ticks() < pause) cpu::relax();
    const std::size_t which = store_to_due ? 0 : 1 + random() % (words - 1);
    answered.word.store(0, std::memory_order_relaxed);
    const Ticks begun = ticks();
    lines[which].word.fetch_add(1, std::memory_order_release);
    Ticks seen;
    while ((seen = answered.word.load(std::memory_order_acquire)) == 0) {
    }
    late.push_back(to_us(seen - begun));
  }
  stop.store(true);
  watching.join();
  std::sort(late.begin(), late.end());
  std::printf("%5zu words  %-6s store to %-8s p50 %6.2f us  p99 %6.2f us\n", words, doze_on_due ? "due" : "turns",
              store_to_due ? "the due" : "another", late[late.size() / 2], late[late.size() * 99 / 100]);
}

}  // namespace

int main() {
  std::printf("rung %s, %u CPUs\n", std::string(cpu::chosen().name).c_str(), std::thread::hardware_concurrency());
  for (const std::size_t words : {2, 8, 64, 512}) {
    for (const bool doze_on_due : {false, true}) {
      for (const bool store_to_due : {true, false}) measure(words, doze_on_due, store_to_due);
    }
  }
}
