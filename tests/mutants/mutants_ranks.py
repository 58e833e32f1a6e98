"""Mutants of joining, leaving and dropping, and of the end of a stream."""

from __future__ import annotations

from mutant import ORDERS, Case, Mutant, mutant
from mutants_publish import GATING, READER, WRITER

LEFT = Case("queue/test_joins.cpp", "a rank that left gates nobody*")
DROPPED = Case("queue/test_joins.cpp", "a dropped reader learns it*")
WITHIN_ONE = Case("queue/test_interleaved.cpp", "a rank takes, leaves and comes back within one publish*")
LYING_DOWN = Case("queue/test_interleaved.cpp", "a reader asks to join and lies down*")
LOOKS = Case("queue/test_interleaved.cpp", "a join is confirmed while the reader looks*")
KILLED = Case("queue/test_killed.cpp", "killed at any store of a join's confirmation*")
CLOSED = Case("queue/test_joins.cpp", "a closed stream is drained*")
SHUTDOWN = Case("queue/test_joins.cpp", "shutdown*")

START = "gate.start.store(before, std::memory_order_relaxed);"
CONFIRM = "gate.gate.store(stay, std::memory_order_seq_cst);"

MUTANTS: list[Mutant] = [
    Mutant(
        "a rank is confirmed before it is told where it starts",
        WRITER,
        [(START, ""), (CONFIRM, CONFIRM + "\n" + START)],
        [ORDERS, Case("queue/test_ends.cpp", "a join is confirmed at any instruction*")],
        quick=True,
    ),
    mutant("a confirmation may come before its start", WRITER, CONFIRM, CONFIRM.replace("seq_cst", "relaxed"), ORDERS),
    mutant(
        "a rank starts behind the publish that confirms it", WRITER, START, START.replace("before", "published_"), LEFT
    ),
    mutant(
        "a request is made without a word",
        READER,
        "    shm::doorbell::announce(lines_.park.epoch);\n  }\n",
        "  }\n",
        LEFT,
    ),
    mutant(
        "a request is ordered by nothing",
        READER,
        "lines_.park.stay.store(wanted, std::memory_order_seq_cst);",
        "lines_.park.stay.store(wanted, std::memory_order_relaxed);",
        ORDERS,
    ),
    mutant("a rank that was dropped leaves instead of coming back", READER, "(stay | 1) + 1;", "stay + 1;", DROPPED),
    mutant(
        "a rank comes back to where it was confirmed, and not to where it has read",
        READER,
        "next_ = published_ = released_ = cursor > start ? cursor : start;",
        "next_ = published_ = released_ = start;",
        WITHIN_ONE,
    ),
    mutant(
        "the writer believes a cursor from before the join",
        GATING,
        "cursor > start ? cursor : start;",
        "cursor; static_cast<void>(start);",
        Case("queue/test_ends.cpp", "a rank that is confirmed and has not looked yet*"),
    ),
    mutant(
        "a rank that has left gates",
        GATING,
        "if (stay % 2 != 0) return Standing::left;",
        "",
        Case("queue/test_joins.cpp", "words of both sides*"),
    ),
    mutant(
        "a dropped rank gates",
        WRITER,
        "gate.store(stay | 1, std::memory_order_seq_cst);",
        "gate.store(stay, std::memory_order_seq_cst);",
        DROPPED,
    ),
    mutant(
        "a dropped rank is not woken",
        WRITER,
        "  limit_ = 0;\n  shm::doorbell::ring(bells_[rank]);",
        "  limit_ = 0;",
        DROPPED,
    ),
    mutant(
        "cached slots hide a drop",
        READER,
        "gate.load(std::memory_order_acquire) % 2 != 0",
        "gate.load(std::memory_order_acquire) == 0 - 1ull",
        DROPPED,
    ),
    mutant(
        "a drop is seen without what came before it",
        READER,
        "gate.load(std::memory_order_acquire) % 2 != 0",
        "gate.load(std::memory_order_relaxed) % 2 != 0",
        ORDERS,
    ),
    mutant(
        "a gate is seen without its start",
        GATING,
        ".gate.load(std::memory_order_acquire);",
        ".gate.load(std::memory_order_relaxed);",
        ORDERS,
    ),
    mutant(
        "a closed stream has no end",
        READER,
        " ||\n         control.writer.closed.load(std::memory_order_seq_cst) != 0;",
        ";",
        CLOSED,
    ),
    mutant(
        "the end wakes nobody",
        READER,
        "  if (ended()) return true;\n  switch",
        "  switch",
        Case("queue/test_joins.cpp", "a rank that waits for its confirmation*"),
    ),
    mutant(
        "an end is seen without what came before it",
        READER,
        "control.writer.closed.load(std::memory_order_seq_cst)",
        "control.writer.closed.load(std::memory_order_relaxed)",
        ORDERS,
    ),
    mutant(
        "a shutdown at once drains first",
        READER,
        "owner.shutdown.load(std::memory_order_acquire) == 2",
        "owner.shutdown.load(std::memory_order_acquire) == 3",
        SHUTDOWN,
    ),
]
