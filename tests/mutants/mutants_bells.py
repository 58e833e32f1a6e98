"""Mutants of the doorbell, both ways: announcing, looking again, hearing, ringing, marking."""

from __future__ import annotations

from mutant import ORDERS, Case, Mutant, mutant
from mutants_publish import READER, WRITER, at_once

DOORBELL = "native/shm/doorbell.h"
RING = "native/shm/doorbell.cpp"

LIES_DOWN = Case("queue/test_interleaved.cpp", "the writer publishes while a reader lies down")
PUBLISHES = Case("queue/test_interleaved.cpp", "a reader lies down while the writer publishes")
WRITER_LIES_DOWN = Case("queue/test_interleaved.cpp", "a reader releases while the writer lies down")
RELEASES = Case("queue/test_interleaved.cpp", "the writer lies down while a reader releases")
TWO_RELEASE = Case("queue/test_interleaved.cpp", "two readers release at once*")

FETCH_ADD = "epoch.fetch_add(1, std::memory_order_seq_cst);"
HEARD = "return epoch.load(std::memory_order_seq_cst);"
LOAD_AND_STORE = "epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);"
RING_READER = "  shm::doorbell::ring(bells_[rank]);\n  AIOSPIN_PROBE(rang);"
RING_WRITER = "shm::doorbell::ring(writer_bell_);"
NEEDED = "room.needed.store(needed_, std::memory_order_relaxed);"

MUTANTS: list[Mutant] = [
    mutant(
        "an epoch is raised by a load and a store",
        DOORBELL,
        FETCH_ADD,
        LOAD_AND_STORE,
        Case("shm/test_doorbell.cpp", "announcements of two threads*", repeats=40),
        at_once("a publish, and a reader that lies down"),
        at_once("a release, and a writer that lies down for room"),
        ORDERS,
    ),
    mutant(
        "an epoch is raised without a barrier", DOORBELL, FETCH_ADD, FETCH_ADD.replace("seq_cst", "relaxed"), ORDERS
    ),
    mutant("an epoch is heard too early", DOORBELL, HEARD, HEARD.replace("seq_cst", "acquire"), ORDERS),
    mutant(
        "a reader's park is not announced",
        READER,
        "AIOSPIN_PROBE(park);\n  shm::doorbell::announce(lines_.park.epoch);",
        "AIOSPIN_PROBE(park);",
        LIES_DOWN,
    ),
    mutant(
        "a reader does not look again",
        READER,
        "  return ready();\n}",
        "  return false;\n}",
        PUBLISHES,
        LIES_DOWN,
        quick=True,
    ),
    mutant("a writer's park is not announced", WRITER, "shm::doorbell::announce(room.epoch);", "", WRITER_LIES_DOWN),
    mutant(
        "a writer does not look again", WRITER, "  return ready();\n}", "  return false;\n}", RELEASES, WRITER_LIES_DOWN
    ),
    mutant("a publish rings nobody", WRITER, RING_READER, "", LIES_DOWN, PUBLISHES),
    mutant(
        "a publish rings the same sleeper again",
        WRITER,
        "rung_[rank] = epoch;",
        "",
        Case("queue/test_bells.cpp", "a sleeper is rung for once*"),
    ),
    mutant(
        "a publish believes that it has rung",
        WRITER,
        "if (epoch != rung_[rank]) [[unlikely]]",
        "if (rung_[rank] == 0 && epoch != 0)",
        Case("queue/test_bells.cpp", "a sleeper is rung for once*"),
    ),
    mutant(
        "a reader is rung before it can see anything",
        WRITER,
        "  const std::uint64_t before = published_;\n",
        "  for (const int bell : bells_) shm::doorbell::ring(bell);\n  const std::uint64_t before = published_;\n",
        Case("queue/test_killed.cpp", "killed at any store of a publish*"),
    ),
    mutant(
        "a writer that arrives is silent",
        WRITER,
        "listen(rank, shm::doorbell::heard(segment_->reader(rank).park.epoch), published_);",
        "",
        Case("queue/test_joins.cpp", "a writer that arrives confirms*"),
    ),
    mutant("a release rings nobody", READER, RING_WRITER, "", RELEASES, WRITER_LIES_DOWN),
    mutant(
        "a release that makes no room counts as a ring",
        READER,
        ".released < needed) return false;",
        ".released < needed) return rung_ = epoch, false;",
        Case("queue/test_bells.cpp", "a release that does not make the room*"),
        quick=True,
    ),
    mutant(
        "a release rings before there is room",
        READER,
        "if (slowest(*segment_).released < needed) return false;",
        "static_cast<void>(needed);",
        Case("queue/test_bells.cpp", "a release that does not make the room*"),
    ),
    mutant(
        "a release rings the same sleeper again",
        READER,
        "rung_ = epoch;",
        "",
        Case("queue/test_bells.cpp", "a writer is rung for once*"),
    ),
    mutant(
        "the reader that crosses the line looks only at itself",
        READER,
        "slowest(*segment_).released < needed",
        "released < needed",
        Case("queue/test_bells.cpp", "a release that does not make the room*"),
    ),
    Mutant(
        "a writer says what it needs after it has announced itself",
        WRITER,
        [(NEEDED, ""), ("shm::doorbell::announce(room.epoch);", "shm::doorbell::announce(room.epoch);\n" + NEEDED)],
        [ORDERS],
    ),
    mutant(
        "a reader has no barrier run for a peer with plain stores",
        READER,
        "membarrier::everywhere();",
        "",
        at_once("a publish with plain stores*"),
        quick=True,
    ),
    mutant(
        "a writer has no barrier run for a peer with plain stores",
        WRITER,
        "if (has_light(*segment_)) membarrier::everywhere();",
        "",
        at_once("a release with plain stores*"),
    ),
    mutant(
        "a drain takes one read's worth",
        RING,
        "n == static_cast<ssize_t>(sizeof bytes) || ",
        "",
        Case("shm/test_doorbell.cpp", "numbers of rings*"),
    ),
]
