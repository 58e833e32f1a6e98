// The fuzzer's own driver: campaigns of seeded executions in worker processes that are watched.
//
//   fuzz --executions 1000000 --seed 1                damage between the steps: every execution can be replayed
//   fuzz --racing --executions 100000                 damage by a thread of its own, under the steps' hands
//   fuzz --seed 1 --replay 4711                       that execution alone, in this process
//
// Guarantee: prints how many executions ran and what they were answered; a worker that dies, or that finishes no
// execution for a minute, is a failure with the number to replay, and the exit status is then 1.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "damage.h"
#include "execution.h"

namespace {

using namespace aiospin;
using namespace aiospin::fuzz;

constexpr int kPatience = 60;  // seconds without a finished execution

struct Options {
  std::uint64_t executions = 100'000, seed = 1, jobs = 2, replay = 0;
  bool racing = false, replaying = false;
};

// What a worker tells, in memory that outlives it.
struct Report {
  std::atomic<std::uint64_t> current{0}, done{0};
  Tally tally;
};

// Rings of several lengths, one of them no power of two, and every number of readers that differs.
std::vector<std::unique_ptr<Arena>> make_arenas() {
  std::vector<std::unique_ptr<Arena>> arenas;
  const std::uint64_t page = rig::kPageBytes;
  for (const auto& [readers, pages] : {std::pair{1u, 1u}, {2u, 2u}, {1u, 3u}, {3u, 1u}, {0u, 1u}}) {
    arenas.push_back(std::make_unique<Arena>(readers, pages * page));
  }
  return arenas;
}

// Damages whatever arena it is pointed at, without pause, until it is told to stop.
class Racer {
 public:
  explicit Racer(std::uint64_t seed) : thread_([this, seed] { run(seed); }) {}
  ~Racer() {
    // relaxed: joining orders the rest.
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  void aim(Arena* arena) noexcept { aim_.store(arena, std::memory_order_release); }

 private:
  void run(std::uint64_t seed) noexcept {
    for (std::uint64_t number = 0; !stop_.load(std::memory_order_relaxed); ++number) {
      Choices choose(~seed, number);
      if (Arena* const arena = aim_.load(std::memory_order_acquire)) damage(*arena, choose);
    }
  }
  std::atomic<bool> stop_{false};
  std::atomic<Arena*> aim_{nullptr};
  std::thread thread_;
};

// Every `jobs`-th execution from `first` on.
void work(const Options& options, std::uint64_t first, Report& report) {
  const auto arenas = make_arenas();
  const auto racer = options.racing ? std::make_unique<Racer>(options.seed + first) : nullptr;
  for (std::uint64_t number = first; number < options.executions; number += options.jobs) {
    // relaxed: read after this process has ended, or to see that it moves.
    report.current.store(number, std::memory_order_relaxed);
    Choices choose(options.seed, number);
    Arena& arena = *arenas[choose.below(arenas.size())];
    if (racer) racer->aim(&arena);
    execute(arena, choose, options.racing, report.tally);
    report.done.fetch_add(1, std::memory_order_relaxed);
  }
}

std::string how(int status) {
  if (WIFSIGNALED(status)) return std::string("died of ") + strsignal(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

void complain(const Options& options, std::uint64_t number, const std::string& what) {
  std::fprintf(stderr, "fuzz: execution %llu of seed %llu %s\n", static_cast<unsigned long long>(number),
               static_cast<unsigned long long>(options.seed), what.c_str());
  std::fprintf(stderr, "fuzz: again with: --seed %llu %s%llu\n", static_cast<unsigned long long>(options.seed),
               options.racing ? "--racing --executions " : "--replay ",
               static_cast<unsigned long long>(options.racing ? options.executions : number));
}

// Waits for all workers; true when each ended well.
bool watch(const Options& options, const std::vector<pid_t>& workers, Report* reports) {
  std::vector<std::uint64_t> seen(workers.size(), 0);
  std::vector<int> idle(workers.size(), 0);
  std::size_t left = workers.size();
  std::vector<bool> over(workers.size(), false);
  bool good = true;
  while (left != 0) {
    for (std::size_t at = 0; at < workers.size(); ++at) {
      int status = 0;
      if (over[at]) continue;
      const std::uint64_t number = reports[at].current.load(std::memory_order_relaxed);
      if (waitpid(workers[at], &status, WNOHANG) == workers[at]) {
        over[at] = true;
        --left;
        if (status != 0) {
          complain(options, number, how(status));
          good = false;
        }
        continue;
      }
      const std::uint64_t done = reports[at].done.load(std::memory_order_relaxed);
      idle[at] = done == seen[at] ? idle[at] + 1 : 0;
      seen[at] = done;
      if (idle[at] == kPatience * 10) {
        complain(options, number, "does not end");
        kill(workers[at], SIGKILL);
        good = false;
      }
    }
    if (left != 0) usleep(100'000);
  }
  return good;
}

void print(const Options& options, std::uint64_t done, const Tally& tally) {
  const auto& [looks, rooms, takeovers, refused, damages] = tally;
  const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("fuzz: %llu executions (%s), seed %llu, %llu damages\n", n(done),
              options.racing ? "damaged by a racing thread" : "damaged between steps", n(options.seed), n(damages));
  std::printf("  readers: %llu ready, %llu empty, %llu closed, %llu dropped, %llu corrupt, %llu lost, %llu no memory\n",
              n(looks[0]), n(looks[1]), n(looks[2]), n(looks[3]), n(looks[4]), n(looks[5]), n(looks[6]));
  std::printf("  writers: %llu ready, %llu full, %llu closed, %llu corrupt; %llu takeovers, %llu of them refused\n",
              n(rooms[0]), n(rooms[1]), n(rooms[2]), n(rooms[3]), n(takeovers), n(refused));
}

int campaign(const Options& options) {
  const std::size_t bytes = sizeof(Report) * options.jobs;
  void* const shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw_errno("mmap");
  auto* const reports = static_cast<Report*>(shared);
  std::vector<pid_t> workers;
  for (std::uint64_t job = 0; job < options.jobs; ++job) {
    new (&reports[job]) Report();
    const pid_t pid = fork();
    if (pid < 0) throw_errno("fork");
    if (pid == 0) {
      work(options, job, reports[job]);
      std::exit(0);
    }
    workers.push_back(pid);
  }
  const bool good = watch(options, workers, reports);
  Tally tally;
  std::uint64_t done = 0;
  for (std::uint64_t job = 0; job < options.jobs; ++job) {
    tally.add(reports[job].tally);
    done += reports[job].done.load(std::memory_order_relaxed);
  }
  print(options, done, tally);
  return good && done == options.executions ? 0 : 1;
}

int replay(const Options& options) {
  const auto arenas = make_arenas();
  Choices choose(options.seed, options.replay);
  Tally tally;
  execute(*arenas[choose.below(arenas.size())], choose, false, tally);
  print(options, 1, tally);
  return 0;
}

Options parse(int count, char** arguments) {
  Options options;
  for (int at = 1; at < count; ++at) {
    const std::string name = arguments[at];
    if (name == "--racing") {
      options.racing = true;
      continue;
    }
    std::uint64_t* const value = name == "--executions" ? &options.executions
                                 : name == "--seed"     ? &options.seed
                                 : name == "--jobs"     ? &options.jobs
                                 : name == "--replay"   ? &options.replay
                                                        : nullptr;
    if (value == nullptr || ++at == count) {
      std::fprintf(stderr, "fuzz: [--racing] [--executions N] [--seed N] [--jobs N] [--replay N], not %s\n", name.c_str());
      std::exit(2);
    }
    *value = std::strtoull(arguments[at], nullptr, 0);
    if (value == &options.replay) options.replaying = true;
  }
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  return options.replaying ? replay(options) : campaign(options);
}
