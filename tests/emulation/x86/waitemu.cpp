// An LD_PRELOAD library that carries out UMONITOR, UMWAIT, TPAUSE, MONITORX and MWAITX on any x86-64 CPU, and counts them.
//
// It works on programs in which patch.py has put UD2's opcode into each of these instructions and left the rest of their
// bytes: the instruction then traps everywhere, and this handler of SIGILL reads from its prefix and its last byte which
// one it was. Memory is watched by comparing the 64 bytes of the armed line, so a store of what was there is not seen.
//
// Guarantee: operands are read as the manuals say (Intel SDM vol. 2B, AMD APM vol. 3), and reserved ones stay fatal. The
// handler stays in front of those that are installed later, which get every other SIGILL, and SIGILL stays unblocked.
// Counts of all processes are added up in the file that EMULATED_CPU names (emulated_cpu.py reads it).
// Assumption: of signals only SIGILL's delivery is touched; a signal does not end an emulated wait, as it does a real one.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

using Ticks = std::uint64_t;
constexpr Ticks kNever = ~Ticks{0};
constexpr std::size_t kLine = 64;

// ---- what all processes share; emulated_cpu.py knows the same order

enum Count : unsigned {
  kProcesses, kUmonitor, kUmwait, kTpause, kMonitorx, kMwaitx,  // executed
  kStore, kDeadline, kLimit, kInterrupt,                        // how a wait ended
  kUnarmed,                                                     // a wait without anything to watch
  kCounts
};

struct Page {
  Ticks limit;      // IA32_UMWAIT_CONTROL[31:2]: the longest UMWAIT or TPAUSE; 0 for none
  Ticks interrupt;  // any wait ends by then, as by the timer's interrupt
  std::uint64_t ends;  // how a wait may end, bit by Count: a test that allows one of them knows which it was
  std::uint64_t counts[kCounts];
};

Page the_own{100'000, 10'000'000, ~std::uint64_t{0}, {}};  // when no file is named, or it cannot be had
Page* the_page = &the_own;

// relaxed: a number, read when whoever made it has ended or joined.
void count(unsigned which) noexcept {
  std::atomic_ref(the_page->counts[which]).fetch_add(1, std::memory_order_relaxed);
}
// relaxed: a test sets it while nobody waits.
std::uint64_t shared(std::uint64_t& value) noexcept { return std::atomic_ref(value).load(std::memory_order_relaxed); }

void map_page() noexcept {
  const char* name = std::getenv("EMULATED_CPU");
  const int fd = name == nullptr ? -1 : open(name, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const mapped = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) the_page = static_cast<Page*>(mapped);
}

// ---- the monitor of this logical CPU, which here is this thread

struct Monitor {
  const volatile std::uint64_t* line;
  std::uint64_t copy[kLine / 8];
  bool armed;

  void arm(std::uint64_t address) noexcept {
    line = reinterpret_cast<const volatile std::uint64_t*>(address & ~(kLine - 1));
    for (std::size_t i = 0; i < kLine / 8; ++i) copy[i] = line[i];  // a load: it faults where the real one does
    armed = true;
    // What the program looks at after arming is not older than the copy.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  bool written() const noexcept {
    for (std::size_t i = 0; i < kLine / 8; ++i) {
      if (line[i] != copy[i]) return true;
    }
    return false;
  }
};

// Preloaded, so its block exists when a thread begins: a handler must not make the loader allocate one.
thread_local Monitor the_monitor __attribute__((tls_model("initial-exec"))){};

// How it ended, counted.
Count wait(bool watching, Ticks deadline, Ticks limit) noexcept {
  const Ticks begun = __rdtsc(), cut = limit == 0 ? kNever : begun + limit, tick = begun + shared(the_page->interrupt);
  for (unsigned look = 0;; ++look) {
    const Ticks now = __rdtsc();
    const struct { Count how; bool reached; } ends[] = {{kStore, watching && the_monitor.written()},
                                                        {kDeadline, now >= deadline},
                                                        {kLimit, now >= cut},
                                                        {kInterrupt, now >= tick}};
    for (const auto& end : ends) {
      if (!end.reached || (shared(the_page->ends) >> end.how & 1) == 0) continue;
      count(end.how);
      return end.how;
    }
    if (look < 64) {
      _mm_pause();
    } else {
      sched_yield();  // whoever is to store may need this very core
    }
  }
}

// ---- the instructions; false when the real one would fault

// In the order of their numbers in ModRM and REX.
constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

std::uint32_t low(greg_t value) noexcept { return static_cast<std::uint32_t>(value); }

// UMWAIT watches, TPAUSE does not. CF says that the limit of the OS ended it; OF, SF, ZF, AF and PF are cleared.
bool waitpkg(greg_t* registers, std::uint32_t control, bool watches) noexcept {
  if ((control & ~1u) != 0) return false;
  count(watches ? kUmwait : kTpause);
  const Ticks deadline = Ticks{low(registers[REG_RDX])} << 32 | low(registers[REG_RAX]);
  Count ended = kUnarmed;
  if (watches && !the_monitor.armed) {
    count(kUnarmed);
  } else {
    ended = wait(watches, deadline, shared(the_page->limit));
  }
  if (watches) the_monitor.armed = false;
  registers[REG_EFL] = (registers[REG_EFL] & ~0x8d5) | (ended == kLimit ? 1 : 0);
  return true;
}

bool monitorx(greg_t* registers) noexcept {
  if (low(registers[REG_RCX]) != 0) return false;
  count(kMonitorx);
  the_monitor.arm(static_cast<std::uint64_t>(registers[REG_RAX]));
  return true;
}

bool mwaitx(greg_t* registers) noexcept {
  const std::uint32_t extensions = low(registers[REG_RCX]), timer = low(registers[REG_RBX]);
  if ((extensions & ~3u) != 0) return false;
  count(kMwaitx);
  if (the_monitor.armed) {
    wait(true, (extensions & 2) != 0 && timer != 0 ? __rdtsc() + timer : kNever, 0);
  } else {
    count(kUnarmed);
  }
  the_monitor.armed = false;
  return true;
}

// Carries out what `registers` point at, and steps over it. False: it is none of ours.
bool execute(greg_t* registers) noexcept {
  const auto* code = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  unsigned prefix = 0, rex = 0;
  if (*code == 0xf3 || *code == 0xf2 || *code == 0x66) prefix = *code++;
  if ((*code & 0xf0) == 0x40) rex = *code++;
  if (code[0] != 0x0f || code[1] != 0x0b) return false;
  const unsigned last = code[2];
  bool done = false;
  if (prefix == 0) {
    done = last == 0xfa ? monitorx(registers) : last == 0xfb && mwaitx(registers);
  } else if ((last & 0xf8) == 0xf0) {
    const greg_t operand = registers[kRegisters[(last & 7) | (rex & 1) << 3]];
    if (prefix == 0xf3) {
      count(kUmonitor);
      the_monitor.arm(static_cast<std::uint64_t>(operand));
      done = true;
    } else {
      done = waitpkg(registers, low(operand), prefix == 0xf2);
    }
  }
  if (done) registers[REG_RIP] = reinterpret_cast<greg_t>(code + 3);
  return done;
}

// ---- SIGILL

using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);
using Sigmask = int (*)(int, const sigset_t*, sigset_t*);

template <typename Function>
Function real(const char* name) noexcept {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

Sigaction real_sigaction() noexcept {
  static const auto found = real<Sigaction>("sigaction");
  return found;
}

// What the program installed last: it gets what is not ours.
struct sigaction the_other {};

void die() noexcept {
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  real_sigaction()(SIGILL, &fatal, nullptr);
  raise(SIGILL);  // when the handler returns, or the instruction does it again
}

void on_illegal(int number, siginfo_t* info, void* context) {
  const int before = errno;
  const bool by_instruction = info->si_code > 0;
  if (!by_instruction || !execute(static_cast<ucontext_t*>(context)->uc_mcontext.gregs)) {
    const struct sigaction& other = the_other;
    if ((other.sa_flags & SA_SIGINFO) != 0) {
      other.sa_sigaction(number, info, context);
    } else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) {
      other.sa_handler(number);
    } else if (by_instruction || other.sa_handler == SIG_DFL) {
      die();
    }
  }
  errno = before;
}

// Blocked, a trap kills at once.
int mask_without_ours(Sigmask mask, int how, const sigset_t* set, sigset_t* before) noexcept {
  if (set == nullptr || how == SIG_UNBLOCK) return mask(how, set, before);
  sigset_t kept = *set;
  sigdelset(&kept, SIGILL);
  return mask(how, &kept, before);
}

__attribute__((constructor)) void start() noexcept {
  map_page();
  count(kProcesses);
  struct sigaction ours {};
  ours.sa_sigaction = on_illegal;
  // Nested, since reading a line may raise SIGSEGV, and a handler for that may leave by siglongjmp.
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  real_sigaction()(SIGILL, &ours, &the_other);
  sigset_t trap;
  sigemptyset(&trap);
  sigaddset(&trap, SIGILL);
  pthread_sigmask(SIG_UNBLOCK, &trap, nullptr);
}

}  // namespace

// ---- in front of libc

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int sigaction(int number, const struct sigaction* next, struct sigaction* before) noexcept {
  if (number != SIGILL) return real_sigaction()(number, next, before);
  const struct sigaction was = the_other;
  if (next != nullptr) the_other = *next;
  if (before != nullptr) *before = was;
  return 0;
}

EXPORTED sighandler_t signal(int number, sighandler_t next) noexcept {
  struct sigaction wanted {}, before {};
  wanted.sa_handler = next;
  wanted.sa_flags = SA_RESTART;
  return sigaction(number, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

EXPORTED int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  static const auto mask = real<Sigmask>("pthread_sigmask");
  return mask_without_ours(mask, how, set, before);
}

EXPORTED int sigprocmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  static const auto mask = real<Sigmask>("sigprocmask");
  return mask_without_ours(mask, how, set, before);
}
