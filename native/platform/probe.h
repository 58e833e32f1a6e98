// Static tracepoints: named places of the hot path at which a tracer can look, and a test can end the process.
//
// Each is one `nop` and a note in the ELF file, in the format that perf, bpftrace, gdb and SystemTap read (version 3 of
// .note.stapsdt, https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation). Until somebody attaches, a probe
// costs the nop. The provider is `aiospin`; docs/howto/tracing.md lists the names.
//
// Stores before a probe in the source lie before it in the machine code too, and those after it after.
#pragma once

#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
#define AIOSPIN_PROBE(name)                                                 \
  asm volatile(                                                             \
      "990: nop\n"                                                          \
      ".pushsection .note.stapsdt,\"?\",\"note\"\n"                         \
      ".balign 4\n"                                                         \
      ".4byte 992f-991f, 994f-993f, 3\n"                                    \
      "991: .asciz \"stapsdt\"\n"                                           \
      "992: .balign 4\n"                                                    \
      "993: .8byte 990b, _.stapsdt.base, 0\n"                               \
      ".asciz \"aiospin\", \"" #name "\", \"\"\n"                           \
      "994: .balign 4\n"                                                    \
      ".popsection\n"                                                       \
      ".ifndef _.stapsdt.base\n"                                            \
      ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
      ".weak _.stapsdt.base\n"                                              \
      ".hidden _.stapsdt.base\n"                                            \
      "_.stapsdt.base: .space 1\n"                                          \
      ".size _.stapsdt.base, 1\n"                                           \
      ".popsection\n"                                                       \
      ".endif\n" ::                                                         \
          : "memory")
#else
#define AIOSPIN_PROBE(name) static_cast<void>(0)
#endif
