// A pipe, and a process that sleeps in epoll at its other end.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "floor/floor.h"
#include "platform/clock.h"
#include "platform/error.h"
#include "platform/fd.h"

namespace aiospin::floor {
namespace {

constexpr std::uint64_t kSpinBelow = 500'000;

struct Pipe {
  Fd read, write;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe2");
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
};

// An epoll set of one pipe: what an event loop does to wait for it, and nothing besides.
class Sleeper {
 public:
  explicit Sleeper(int fd) : epoll_(epoll_create1(EPOLL_CLOEXEC)), fd_(fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_.get() < 0 || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("epoll_ctl");
  }
  bool next(std::uint64_t& stamp) const noexcept {
    epoll_event event;
    int ready;
    do ready = epoll_wait(epoll_.get(), &event, 1, -1);
    while (ready < 0 && errno == EINTR);
    return ready == 1 && ::read(fd_, &stamp, sizeof stamp) == sizeof stamp;
  }

 private:
  Fd epoll_;
  int fd_;
};

bool send(const Pipe& pipe, std::uint64_t stamp) noexcept {
  return ::write(pipe.write.get(), &stamp, sizeof stamp) == sizeof stamp;
}

void pause_for(std::uint64_t gap) noexcept {
  if (gap >= kSpinBelow) {
    const timespec nap{static_cast<time_t>(gap / 1'000'000'000u), static_cast<long>(gap % 1'000'000'000u)};
    nanosleep(&nap, nullptr);
  } else if (gap != 0) {
    for (const std::uint64_t start = monotonic_ns(); monotonic_ns() - start < gap;) {
    }
  }
}

std::uint64_t thread_cpu_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// Memory that forked children share with this process.
class Shared {
 public:
  explicit Shared(std::size_t words) : length_(words * sizeof(std::uint64_t)) {
    void* base = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (base == MAP_FAILED) throw_errno("mmap");
    words_ = static_cast<std::uint64_t*>(base);
  }
  ~Shared() { munmap(words_, length_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::uint64_t& operator[](std::size_t n) const noexcept { return words_[n]; }

 private:
  std::size_t length_;
  std::uint64_t* words_;
};

// A forked process that runs `body` and nothing else, not even this program's exit; it dies with its parent.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw_errno("fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(getppid() == parent && body() ? 0 : 1);
    }
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void join() {
    int status = 0;
    pid_t done;
    do done = waitpid(pid_, &status, 0);
    while (done < 0 && errno == EINTR);
    pid_ = -1;
    if (done < 0 || status != 0) throw std::system_error(ECHILD, std::generic_category(), "the other process failed");
  }

 private:
  pid_t pid_ = -1;
};

std::system_error broken() { return std::system_error(EPIPE, std::generic_category(), "the other process is gone"); }

}  // namespace

Wakes wake(std::size_t count, std::uint64_t gap) {
  Pipe there, back;
  const Sleeper asleep(there.read.get()), answered(back.read.get());
  const Shared round_trips(count);
  Child writer([&] {
    for (std::size_t n = 0; n < count; ++n) {
      pause_for(gap);
      std::uint64_t echo;
      const std::uint64_t stamp = monotonic_ns();
      if (!send(there, stamp) || !answered.next(echo)) return false;
      round_trips[n] = monotonic_ns() - stamp;
    }
    return true;
  });
  there.write = Fd();  // so that a writer that dies is an end of file here
  Wakes wakes;
  wakes.one_way.reserve(count);
  const std::uint64_t begin = monotonic_ns(), cpu = thread_cpu_ns();
  for (std::size_t n = 0; n < count; ++n) {
    std::uint64_t stamp;
    if (!asleep.next(stamp)) throw broken();
    wakes.one_way.push_back(monotonic_ns() - stamp);
    if (!send(back, stamp)) throw broken();
  }
  wakes.reader_cpu = thread_cpu_ns() - cpu;
  wakes.wall = monotonic_ns() - begin;
  writer.join();
  for (std::size_t n = 0; n < count; ++n) wakes.round_trip.push_back(round_trips[n]);
  return wakes;
}

Wakes fan(std::size_t readers, std::size_t count, std::uint64_t gap) {
  const std::vector<Pipe> pipes(readers);
  const Shared arrivals(readers * count), cpu(readers);
  std::vector<std::unique_ptr<Child>> children;
  for (std::size_t r = 0; r < readers; ++r) {
    children.push_back(std::make_unique<Child>([&, r] {
      const Sleeper asleep(pipes[r].read.get());
      const std::uint64_t before = thread_cpu_ns();
      for (std::size_t n = 0; n < count; ++n) {
        std::uint64_t stamp;
        if (!asleep.next(stamp)) return false;
        arrivals[r * count + n] = monotonic_ns() - stamp;
      }
      cpu[r] = thread_cpu_ns() - before;
      return true;
    }));
  }
  Wakes wakes;
  const std::uint64_t begin = monotonic_ns();
  for (std::size_t n = 0; n < count; ++n) {
    pause_for(gap);
    const std::uint64_t stamp = monotonic_ns();
    for (const Pipe& pipe : pipes) {
      if (!send(pipe, stamp)) throw broken();
    }
    wakes.write_cost.push_back(monotonic_ns() - stamp);
  }
  for (const auto& child : children) child->join();
  wakes.wall = monotonic_ns() - begin;
  wakes.reader_cpu = readers != 0 ? cpu[0] : 0;
  for (std::size_t n = 0; n < count; ++n) {
    std::uint64_t last = 0;
    for (std::size_t r = 0; r < readers; ++r) last = std::max(last, std::uint64_t{arrivals[r * count + n]});
    wakes.one_way.push_back(last);
  }
  return wakes;
}

}  // namespace aiospin::floor
