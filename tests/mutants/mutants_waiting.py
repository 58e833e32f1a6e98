"""Mutants of the waiter thread, the completion and the park, and of the words of the bindings."""

from __future__ import annotations

from mutant import ORDERS, Case, Mutant, mutant

COMPLETION = "native/wait/completion.cpp"
SERVICE = "native/wait/service.cpp"
LADDER = "native/wait/ladder.cpp"
MAPPING = "native/bindings/mapping.cpp"
WORD = "native/bindings/word.cpp"

TWO_TOKENS = Case("wait/test_completion.cpp", "two tokens, the second at any moment*", repeats=20)
UNASKED = Case("wait/test_completion.cpp", "a loop that pops both when woken and unasked*")
TIME_OVER = Case("wait/test_service.cpp", "when its time is over*")

DRAIN = "  std::uint64_t count;\n  [[maybe_unused]] const ssize_t drained = read(wake_.get(), &count, sizeof count);\n"
CLEAR = "pending_.exchange(false, std::memory_order_acq_rel);"
SET = "if (pending_.exchange(true, std::memory_order_acq_rel)) return;"
POP = "  const std::lock_guard hold(guard_);\n  return std::exchange(tokens_, {});\n"
EARLY_POP = """\
  std::vector<Token> popped;
  {
    const std::lock_guard early(guard_);
    popped = std::exchange(tokens_, {});
  }
"""
APPEND = "  {\n    const std::lock_guard hold(guard_);\n    tokens_.push_back(token);\n  }\n"

MUTANTS: list[Mutant] = [
    mutant(
        "the loop clears its flag by a plain store",
        COMPLETION,
        CLEAR,
        "pending_.store(false, std::memory_order_release);",
        ORDERS,
    ),
    mutant("the loop's exchange orders nothing", COMPLETION, CLEAR, CLEAR.replace("acq_rel", "relaxed"), ORDERS),
    mutant(
        "a push sets the flag by a load and a store",
        COMPLETION,
        SET,
        "if (pending_.load(std::memory_order_acquire)) return;\n  pending_.store(true, std::memory_order_release);",
        ORDERS,
    ),
    Mutant(
        "the loop drains after it has cleared the flag",
        COMPLETION,
        [(DRAIN, ""), (CLEAR, CLEAR + "\n" + DRAIN)],
        [TWO_TOKENS],
    ),
    Mutant(
        "the loop pops before it clears the flag",
        COMPLETION,
        [(DRAIN, DRAIN + EARLY_POP), (POP, "  return popped;\n")],
        [TWO_TOKENS],
    ),
    mutant(
        "the loop never clears the flag",
        COMPLETION,
        CLEAR,
        "",
        Case("wait/test_completion.cpp", "a token wakes the loop*"),
    ),
    Mutant(
        "a push sets the flag before its token is there",
        COMPLETION,
        [
            (APPEND, ""),
            (
                SET,
                "const bool was = pending_.exchange(true, std::memory_order_acq_rel);\n  std::this_thread::yield();\n",
            ),
            ("  const std::uint64_t one = 1;", APPEND + "  if (was) return;\n  const std::uint64_t one = 1;"),
            ("#include <sys/eventfd.h>", "#include <sys/eventfd.h>\n#include <thread>"),
        ],
        [TWO_TOKENS],
    ),
    mutant(
        "the thread parks a watch without announcing it",
        SERVICE,
        "(over && entry.watch->announce())",
        "false",
        TIME_OVER,
    ),
    mutant(
        "the thread forgets what its second look found",
        SERVICE,
        "(over && entry.watch->announce())",
        "(over && entry.watch->announce() && false)",
        TIME_OVER,
        quick=True,
    ),
    mutant("the thread keeps what it has parked", SERVICE, "} else if (!over) {", "} else {", TIME_OVER),
    mutant(
        "the thread looks at nothing but the word",
        SERVICE,
        "((changed || thorough) && ",
        "(changed && ",
        Case("wait/test_service.cpp", "what became ready before it was submitted*"),
    ),
    mutant(
        "the service is found before it is complete",
        SERVICE,
        "the_service.load(std::memory_order_acquire);",
        "the_service.load(std::memory_order_relaxed);",
        ORDERS,
    ),
    mutant(
        "a park sleeps although its second look found something",
        LADDER,
        "if (watch.announce()) return Woke::ready;",
        "watch.announce();",
        Case("wait/test_ladder.cpp", "park tells the bell*"),
    ),
    mutant(
        "a park leaves its bell full",
        LADDER,
        "if (rang) shm::doorbell::drain(descriptors[0].fd);",
        "",
        Case("wait/test_ladder.cpp", "a bell and another descriptor at once*"),
    ),
    mutant(
        "Python stores a word without a barrier",
        MAPPING,
        "word(offset).exchange(value, std::memory_order_seq_cst);",
        "word(offset).store(value, std::memory_order_release);",
        ORDERS,
    ),
    mutant(
        "Python adds without a barrier",
        MAPPING,
        "word(offset).fetch_add(value, std::memory_order_seq_cst);",
        "word(offset).fetch_add(value, std::memory_order_relaxed);",
        ORDERS,
    ),
    mutant(
        "a word for others is stored without releasing",
        WORD,
        "store(value, std::memory_order_release);",
        "store(value, std::memory_order_relaxed);",
        ORDERS,
    ),
    mutant(
        "a word of others is looked at without acquiring",
        "native/wait/word_watch.cpp",
        "word_.load(std::memory_order_acquire)",
        "word_.load(std::memory_order_relaxed)",
        ORDERS,
    ),
]
