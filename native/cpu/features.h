// What this CPU says that it can do: CPUID on x86-64, hwcaps on arm64.
//
// Guarantee: asked once per process (CPUID traps in a guest, over a microsecond each). What it says may be a lie under
// a hypervisor, hence trial.h. AIOSPIN_CPU_FEATURES corrects it, for tests: "+wfxt,-waitpkg"; other words are ignored.
#pragma once

#include <string_view>

namespace aiospin::cpu {

struct Features {
  bool waitpkg = false;    // UMONITOR, UMWAIT, TPAUSE: CPUID 7.0 ECX[5]
  bool monitorx = false;   // MONITORX, MWAITX: CPUID 8000_0001h ECX[29]
  bool evtstrm = false;    // the kernel's event stream, which bounds WFE: HWCAP bit 2
  bool wfxt = false;       // WFET: HWCAP2 bit 31
  bool sb = false;         // SB: HWCAP bit 29
  bool invariant = false;  // the counter behind ticks() runs at one rate: CPUID 8000_0007h EDX[8]; always so on arm64
  bool hypervisor = false; // CPUID 1 ECX[31]; not told on arm64
  unsigned smallest_line = 0, largest_line = 0;  // bytes that a monitor watches; 0: not told. CPUID 5, CTR_EL0.ERG
};

const Features& features() noexcept;

// The corrections of AIOSPIN_CPU_FEATURES.
Features corrected(Features found, std::string_view corrections) noexcept;

}  // namespace aiospin::cpu
