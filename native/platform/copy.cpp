#include "platform/copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "platform/fd.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace aiospin {

#ifdef __x86_64__

void copy_past_cache(std::byte* to, const std::byte* from, std::size_t n) noexcept {
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min(n, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  n -= head;
  for (; n >= kLine; n -= kLine, to += kLine, from += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  _mm_sfence();  // such stores are ordered by nothing else
  std::memcpy(to, from, n);
}

#else

void copy_past_cache(std::byte* to, const std::byte* from, std::size_t n) noexcept { std::memcpy(to, from, n); }

#endif

std::size_t shared_cache() noexcept {
  // Not sysconf(): in virtual machines it was seen to say ten times as much as there is.
  const Fd file(open("/sys/devices/system/cpu/cpu0/cache/index3/size", O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  unsigned long kib = 0;
  if (file.get() >= 0 && read(file.get(), text, sizeof text - 1) > 0) kib = std::strtoul(text, nullptr, 10);
  return kib != 0 ? std::size_t{kib} << 10 : std::size_t{32} << 20;
}

}  // namespace aiospin
