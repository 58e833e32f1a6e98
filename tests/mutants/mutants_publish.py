"""Mutants of the way of a message: cursors, journal, room."""

from __future__ import annotations

from mutant import ORDERS, Case, Mutant, mutant

CURSOR = "native/shm/cursor.h"
WRITER = "native/queue/writer.cpp"
READER = "native/queue/reader.cpp"
GATING = "native/queue/gating.h"


def at_once(pattern: str) -> Case:
    """A case that two CPUs must coincide for."""
    return Case("queue/test_instant.cpp", f"at one instant: {pattern}", repeats=40)


PUBLISH_AT_ONCE = at_once("a publish, and a reader*")
RELEASE_AT_ONCE = at_once("a release, and a writer*for room")
KILLED_PUBLISHING = Case("queue/test_killed.cpp", "killed at any store of a publish*")
KILLED_SUCCEEDING = Case("queue/test_succession.cpp", "killed at any store of a successor*")
KILLED_TAKING = Case("queue/test_killed.cpp", "killed at any store of a take*")
SLOWEST = Case("queue/test_flow.cpp", "the slowest reader gates the writer*")
SUCCESSOR = Case("queue/test_flow.cpp", "a successor reader starts at*")
ENDS_WHILE_LOOKING = Case("queue/test_ends.cpp", "the stream ends while a reader looks*")

VOID = "journal.cursor.store(kNobody, std::memory_order_relaxed);"
SEQUENCE = "journal.sequence.store(sequence_, std::memory_order_release);"
VOUCH = "journal.cursor.store(staged_, std::memory_order_release);"
ADVANCE = "shm::cursor::advance(control.published.cursor, published_);"
OVER = (
    "  const bool over = ended();  // read before W: whatever was published before the end is then seen, and drained\n"
)
OBSERVE = "  published_ = shm::cursor::observe(control.published.cursor);\n  if"

MUTANTS: list[Mutant] = [
    # cursors
    mutant(
        "a cursor moves by a plain store",
        CURSOR,
        "cursor.exchange(to, std::memory_order_seq_cst);",
        "cursor.store(to, std::memory_order_release);",
        PUBLISH_AT_ONCE,
        RELEASE_AT_ONCE,
        at_once("the last two releases*"),
        ORDERS,
    ),
    mutant(
        "a cursor moves by an exchange that orders nothing",
        CURSOR,
        "cursor.exchange(to, std::memory_order_seq_cst);",
        "cursor.exchange(to, std::memory_order_relaxed);",
        ORDERS,
    ),
    mutant(
        "a cursor is observed without acquiring",
        CURSOR,
        "cursor.load(std::memory_order_acquire);",
        "cursor.load(std::memory_order_relaxed);",
        ORDERS,
        quick=True,
    ),
    mutant(
        "the second look may come early",
        CURSOR,
        "cursor.load(std::memory_order_seq_cst);",
        "cursor.load(std::memory_order_acquire);",
        ORDERS,
    ),
    mutant(
        "the published cursor moves by a plain store",
        WRITER,
        ADVANCE,
        "control.published.cursor.store(published_, std::memory_order_release);",
        PUBLISH_AT_ONCE,
        ORDERS,
        quick=True,
    ),
    mutant(
        "the released cursor moves by a plain store",
        READER,
        "shm::cursor::advance(lines_.released.cursor, released);",
        "lines_.released.cursor.store(released, std::memory_order_release);",
        RELEASE_AT_ONCE,
        ORDERS,
    ),
    mutant("a flush rings nobody's cursor", WRITER, ADVANCE, "", Case("queue/test_flow.cpp", "messages arrive*")),
    # the journal
    Mutant(
        "the journal is written after the published cursor",
        WRITER,
        [(VOID, ""), (SEQUENCE, ""), (VOUCH, ""), (ADVANCE, ADVANCE + "\n" + SEQUENCE + "\n" + VOUCH)],
        [KILLED_PUBLISHING, ORDERS],
        quick=True,
    ),
    mutant("the journal has one entry", WRITER, "turn_ = 1 - turn_;", "", KILLED_PUBLISHING),
    mutant(
        "a successor begins with the entry that it goes by",
        WRITER,
        "turn_ = 1 - entry;",
        "turn_ = entry;",
        KILLED_SUCCEEDING,
    ),
    mutant(
        "a successor takes the first entry that is not behind",
        WRITER,
        "journal.cursor.load(std::memory_order_acquire) != published_",
        "journal.cursor.load(std::memory_order_acquire) < published_",
        KILLED_PUBLISHING,
    ),
    mutant("the old cursor vouches for the new sequence", WRITER, VOID, "", ORDERS),
    Mutant(
        "the journal's cursor is written before its sequence",
        WRITER,
        [(SEQUENCE, "XX"), (VOUCH, SEQUENCE), ("XX", VOUCH)],
        [ORDERS],
    ),
    mutant("the journal's sequence may come late", WRITER, SEQUENCE, SEQUENCE.replace("release", "relaxed"), ORDERS),
    mutant("the journal's cursor may come early", WRITER, VOUCH, VOUCH.replace("release", "relaxed"), ORDERS),
    mutant(
        "a successor reads the journal without acquiring",
        WRITER,
        "journal.cursor.load(std::memory_order_acquire) != published_",
        "journal.cursor.load(std::memory_order_relaxed) != published_",
        ORDERS,
    ),
    # taking and releasing
    Mutant(
        "the end is looked at after the published cursor",
        READER,
        [
            (OVER, ""),
            (
                "  if (published_ != next_) return Look::ready;\n",
                OVER + "  if (published_ != next_) return Look::ready;\n",
            ),
        ],
        [ENDS_WHILE_LOOKING],
    ),
    mutant(
        "what was acquired is not written down",
        READER,
        "lines_.seat.acquired.store(next_, std::memory_order_relaxed);",
        "",
        KILLED_TAKING,
    ),
    mutant(
        "a successor marks nothing as redelivered",
        READER,
        "redelivered_below_ = acquired_ = ",
        "acquired_ = ",
        SUCCESSOR,
        quick=True,
    ),
    mutant(
        "a release gives back what is still held", READER, "window_.empty() ? next_ : window_.front()", "next_", SLOWEST
    ),
    mutant(
        "a cursor from outside the ring is believed",
        READER,
        "if (published_ < next_ || published_ - next_ > capacity_ ||",
        "if (",
        Case("queue/test_flow.cpp", "a scribbled cursor is corrupt*"),
    ),
    # room
    mutant(
        "a writer counts twice the room",
        WRITER,
        "limit_ = found.released + capacity_;",
        "limit_ = found.released + 2 * capacity_;",
        SLOWEST,
    ),
    mutant("the fastest reader gates", GATING, "released < found.released", "released > found.released", SLOWEST),
    mutant(
        "room that suffices exactly is none",
        WRITER,
        "return released >= needed_ ||",
        "return released > needed_ ||",
        Case("queue/test_bells.cpp", "a release that does not make the room*"),
    ),
]
