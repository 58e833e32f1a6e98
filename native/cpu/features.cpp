#include "cpu/features.h"

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace aiospin::cpu {

namespace {

constexpr bool bit(std::uint64_t bits, unsigned number) noexcept { return (bits >> number & 1) != 0; }

#if defined(__x86_64__)

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;  // all zero when the CPU does not have the leaf
};

Leaf leaf(unsigned number, unsigned sub = 0) noexcept {
  Leaf found;
  if (__get_cpuid_count(number, sub, &found.a, &found.b, &found.c, &found.d) == 0) return {};
  return found;
}

Features ask() noexcept {
  const Leaf monitor = leaf(5);
  Features found;
  found.waitpkg = bit(leaf(7).c, 5);
  found.monitorx = bit(leaf(0x8000'0001).c, 29);
  found.invariant = bit(leaf(0x8000'0007).d, 8);
  found.hypervisor = bit(leaf(1).c, 31);
  found.smallest_line = monitor.a & 0xffff;
  found.largest_line = monitor.b & 0xffff;
  return found;
}

#elif defined(__aarch64__)

Features ask() noexcept {
  const std::uint64_t one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
  std::uint64_t caches;
  asm("mrs %0, ctr_el0" : "=r"(caches));
  const unsigned granule = caches >> 20 & 0xf;  // log2 of the words that an exclusive load reserves; 0: not told
  Features found;
  found.evtstrm = bit(one, 2);
  found.sb = bit(one, 29);
  found.wfxt = bit(two, 31);
  found.invariant = true;
  found.largest_line = found.smallest_line = granule == 0 ? 0 : 4u << granule;
  return found;
}

#else

Features ask() noexcept { return {}; }

#endif

struct Name {
  std::string_view text;
  bool Features::* member;
};

constexpr Name kNames[] = {
    {"waitpkg", &Features::waitpkg}, {"monitorx", &Features::monitorx},   {"evtstrm", &Features::evtstrm},
    {"wfxt", &Features::wfxt},       {"sb", &Features::sb},               {"invariant", &Features::invariant},
    {"hypervisor", &Features::hypervisor},
};

}  // namespace

Features corrected(Features found, std::string_view corrections) noexcept {
  while (!corrections.empty()) {
    const std::string_view word = corrections.substr(0, corrections.find(','));
    corrections.remove_prefix(word.size() < corrections.size() ? word.size() + 1 : word.size());
    if (word.empty() || (word[0] != '+' && word[0] != '-')) continue;
    for (const Name& name : kNames) {
      if (name.text == word.substr(1)) found.*name.member = word[0] == '+';
    }
  }
  return found;
}

const Features& features() noexcept {
  static const Features found = [] {
    const char* corrections = std::getenv("AIOSPIN_CPU_FEATURES");
    return corrected(ask(), corrections == nullptr ? "" : corrections);
  }();
  return found;
}

}  // namespace aiospin::cpu
