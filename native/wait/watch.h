// The contract of a watch: what one wait looks at, whoever does the looking.
//
// The thread that waits, or the waiter thread on its behalf, calls these; never both at once.
#pragma once

#include <cstdint>

#include "cpu/rung.h"
#include "platform/word.h"

namespace aiospin::wait {

class Watch {
 public:
  virtual ~Watch() = default;
  // The word whose change is worth a closer look, and the value it has while there is nothing to see.
  virtual const Word& word() const noexcept = 0;
  virtual std::uint64_t seen() const noexcept = 0;
  // The closer look: everything that ends the wait, not only the word.
  virtual bool ready() const noexcept = 0;
  // Asks the other side to ring, then looks again. True: do not sleep.
  virtual bool announce() noexcept = 0;

  // What idles the CPU meanwhile: the process's choice, unless another was set.
  const cpu::Rung& rung() const noexcept { return rung_ == nullptr ? cpu::chosen() : *rung_; }
  void set_rung(const cpu::Rung* rung) noexcept { rung_ = rung; }

 private:
  const cpu::Rung* rung_ = nullptr;
};

// A queue endpoint as a watch.
template <typename Endpoint>
class EndpointWatch final : public Watch {
 public:
  explicit EndpointWatch(Endpoint& endpoint) noexcept : endpoint_(endpoint) {}
  const Word& word() const noexcept override { return endpoint_.watched(); }
  std::uint64_t seen() const noexcept override { return endpoint_.watched_seen(); }
  bool ready() const noexcept override { return endpoint_.ready(); }
  bool announce() noexcept override { return endpoint_.announce(); }

 private:
  Endpoint& endpoint_;
};

}  // namespace aiospin::wait
