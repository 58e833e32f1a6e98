// Comparing a word that nobody rings for.
#include "wait/word_watch.h"

namespace aiospin::wait {

bool WordWatch::ready() const noexcept {
  // sync:word acquire: what the storing side wrote before the word, be it store_word() or another program.
  const std::uint64_t now = word_.load(std::memory_order_acquire) & mask_;
  switch (comparison_) {
    case Comparison::equal:
      return now == value_;
    case Comparison::not_equal:
      return now != value_;
    case Comparison::at_least:
      return now >= value_;
    case Comparison::below:
      return now < value_;
  }
  return false;
}

}  // namespace aiospin::wait
