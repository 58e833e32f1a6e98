/* What the machine itself can do: no queue is faster than these.
 *
 *   floor pingpong COUNT           two pinned threads pass a number back and forth through two cache lines;
 *                                  ns per pass, the median of chunks of 1000 passes
 *   floor wake COUNT INTERVAL_NS   one process writes the time into a pipe at a cadence, another sleeps in epoll;
 *                                  p50 and p99 of the ns from the write to the read, and the reader's CPU per cent
 *   floor memcpy COUNT NBYTES RING copies NBYTES from one buffer into a ring of RING bytes, mapped twice and shared,
 *                                  going round it as a queue does; bytes per ns
 *
 * Prints one JSON object. Every mode ends by itself.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1000 };

static _Alignas(128) _Atomic uint64_t ping;
static _Alignas(128) _Atomic uint64_t pong;

static int64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void pin(int which) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && which-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

static void* echo(void* arg) {
  uint64_t count = *(uint64_t*)arg;
  pin(1);
  for (uint64_t n = 1; n <= count; n++) {
    while (atomic_load_explicit(&ping, memory_order_acquire) != n) {
    }
    atomic_store_explicit(&pong, n, memory_order_release);
  }
  return NULL;
}

static int pingpong(uint64_t count) {
  uint64_t chunks = count / CHUNK;
  double* took = calloc(chunks, sizeof *took);
  pthread_t thread;
  count = chunks * CHUNK;
  if (!took || !chunks || pthread_create(&thread, NULL, echo, &count)) return 1;
  pin(0);
  uint64_t n = 0;
  for (uint64_t c = 0; c < chunks; c++) {
    int64_t start = now(CLOCK_MONOTONIC);
    for (int i = 0; i < CHUNK; i++) {
      atomic_store_explicit(&ping, ++n, memory_order_release);
      while (atomic_load_explicit(&pong, memory_order_acquire) != n) {
      }
    }
    took[c] = (double)(now(CLOCK_MONOTONIC) - start) / (2.0 * CHUNK);
  }
  pthread_join(thread, NULL);
  qsort(took, chunks, sizeof *took, by_value);
  printf("{\"p50_us\": %.6f, \"p99_us\": %.6f}\n", took[chunks / 2] / 1e3, took[chunks * 99 / 100] / 1e3);
  return 0;
}

static int wake(uint64_t count, int64_t interval) {
  int ends[2];
  if (pipe(ends)) return 1;
  pid_t writer = fork();
  if (writer == 0) {
    close(ends[0]);
    struct timespec nap = {interval / 1000000000, interval % 1000000000};
    for (uint64_t n = 0; n < count; n++) {
      nanosleep(&nap, NULL);
      int64_t stamp = now(CLOCK_MONOTONIC);
      if (write(ends[1], &stamp, sizeof stamp) != sizeof stamp) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  double* took = calloc(count, sizeof *took);
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  if (!took || epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event)) return 1;
  int64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  uint64_t n = 0;
  int64_t stamp;
  while (n < count && epoll_wait(epoll, &event, 1, -1) == 1 && read(ends[0], &stamp, sizeof stamp) == sizeof stamp)
    took[n++] = (double)(now(CLOCK_MONOTONIC) - stamp);
  cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  wall = now(CLOCK_MONOTONIC) - wall;
  waitpid(writer, NULL, 0);
  if (!n) return 1;
  qsort(took, n, sizeof *took, by_value);
  printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, \"cpu_percent\": %.3f}\n", took[n / 2] / 1e3, took[n * 99 / 100] / 1e3,
         100.0 * (double)cpu / (double)wall);
  return 0;
}

static int copy(uint64_t count, uint64_t nbytes, uint64_t ring_bytes) {
  int fd = memfd_create("bench", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)ring_bytes)) return 1;
  char* ring = mmap(NULL, 2 * ring_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ring == MAP_FAILED) return 1;
  for (int half = 0; half < 2; half++)
    if (mmap(ring + half * ring_bytes, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
             0) == MAP_FAILED)
      return 1;
  char* source = malloc(nbytes);
  if (!source) return 1;
  memset(source, 7, nbytes);
  memset(ring, 0, ring_bytes);
  uint64_t cursor = 0, step = nbytes + 64;
  int64_t start = 0;
  for (uint64_t n = 0; n < count + count / 10; n++) {
    if (n == count / 10) start = now(CLOCK_MONOTONIC);
    memcpy(ring + cursor % ring_bytes + 64, source, nbytes);
    __asm__ volatile("" ::: "memory");
    cursor += step;
  }
  printf("{\"gb_per_s\": %.4f}\n", (double)count * (double)nbytes / (double)(now(CLOCK_MONOTONIC) - start));
  return 0;
}

int main(int argc, char** argv) {
  alarm(60);
  if (argc == 3 && !strcmp(argv[1], "pingpong")) return pingpong(strtoull(argv[2], NULL, 10));
  if (argc == 4 && !strcmp(argv[1], "wake")) return wake(strtoull(argv[2], NULL, 10), strtoll(argv[3], NULL, 10));
  if (argc == 5 && !strcmp(argv[1], "memcpy"))
    return copy(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
  return 2;
}
