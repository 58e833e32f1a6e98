"""A storm over one queue: a writer and eight readers do at random what users do, and die at random.

    python storm.py --seed 7 --seconds 60

The conductor makes the queue and the book, starts a process for every post, kills, stops and buries them, and starts
successors. When the time is over it lets the writer end the stream, and everybody has to get to that end.

Guarantee: `Storm.run()` returns the figures, or raises Violation with the seed, the command that replays it, and what
every process was doing. All its processes are gone afterwards. Replaying repeats what each process tries, not who is
faster. Assumption: Linux, and room for some 20 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storm_book import (
    AT_WORK,
    DOOMED,
    ENDED,
    FINISHED,
    OPERATIONS,
    READERS,
    ROLES,
    SENT,
    STOP,
    Book,
)
from storm_crew import Crew, Player
from storm_message import Violation
from storm_post import Post
from storm_role import UNEXPLAINED_DEATH

import aiospin

HANG = 30.0  # seconds without progress that no excuse explains
SHORTEST = 2e-2  # seconds between two acts of violence


@dataclass(frozen=True)
class Weather:
    """What a seed makes of a storm."""

    seed: int
    capacity: int
    checksum: bool
    named: bool
    daring: int
    groups: tuple[tuple[int, ...], ...]  # which roles share a process

    @classmethod
    def of(cls, seed: int) -> Weather:
        chance = random.Random(f"weather {seed}")
        ranks = list(range(1, ROLES))
        chance.shuffle(ranks)
        groups = [(0,), *((role,) for role in ranks[:6]), (ranks[6], ranks[7])]
        if chance.random() < 0.25:  # a writer and a reader under one roof
            groups[0:2] = [(0, ranks[0])]
        return cls(
            seed,
            capacity=chance.choice((1 << 16, 1 << 16, 1 << 17, 1 << 18)),
            checksum=chance.random() < 0.3,
            named=chance.random() < 0.4,
            daring=chance.choice((150, 300, 600)),
            groups=tuple(groups),
        )


@dataclass
class Figures:
    """What a storm came to."""

    seed: int
    weather: Weather
    seconds: float = 0.0
    messages: int = 0
    kills: int = 0
    self_kills: int = 0
    takeovers: int = 0
    stops: int = 0
    starts: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        counted = ", ".join(f"{many} {what}" for what, many in self.counts.items() if what != "messages")
        return (
            f"seed {self.seed}: {self.seconds:.1f} s, {self.messages} messages ({self.messages / self.seconds:.0f}/s), "
            f"{self.counts['messages']} received, {self.starts} processes, {self.kills} kills, {self.self_kills} "
            f"self-kills, {self.takeovers} takeovers of the writer, {self.stops} stops, {counted}"
        )


class Storm:
    """One run."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.weather = Weather.of(seed)
        self._seconds = seconds
        self._chance = random.Random(f"conductor {seed}")
        self._figures = Figures(seed, self.weather)
        self._incarnations = dict.fromkeys(self.weather.groups, 0)
        self._backends = ("native", "native", "fallback") if aiospin.backend == "native" else ("fallback",)

    def run(self) -> Figures:
        folder = Path(tempfile.mkdtemp(prefix="storm-"))
        names = folder / "segments"
        names.mkdir(mode=0o700)
        weather, before = self.weather, _footprint()
        named: dict[str, Any] = {"name": f"storm{os.getpid()}", "directory": str(names)} if weather.named else {}
        try:
            queue: aiospin.Queue[bytes] = aiospin.Queue(
                readers=READERS, capacity=weather.capacity, checksum=weather.checksum, **named
            )
            with queue:
                self._book = Book(str(folder / "book"), create=True)
                self._folder, self._queue = folder, queue
                self._handles = [str(queue.writer().handle), *(str(queue.reader(r).handle) for r in range(READERS))]
                with Crew(set(self._backends)) as self._crew:
                    try:
                        self._rage()
                    except Violation as violation:
                        raise Violation(self._story(violation)) from violation
                self._sum_up()
            left = os.listdir(names)
            if left:
                raise Violation(f"left in the directory of named segments: {left}")
            descriptors = _footprint() - before
            if descriptors:
                raise Violation(f"left open by the queue and its handles: {sorted(descriptors)}")
            return self._figures
        finally:
            shutil.rmtree(folder)

    # the course of it

    def _rage(self) -> None:
        for group in self.weather.groups:
            self._start(group)
        began = time.monotonic()
        self._next_deed()
        self._seen = [0] * (ROLES + 1)
        self._seen_at = [began] * (ROLES + 1)
        while self._crew.players:
            self._bury(self._crew.wait(0.005))
            now = time.monotonic()
            if now - began < self._seconds:
                self._do_violence(now)
            elif not self._book.stopping:
                self._crew.go_on(now=float("inf"))
                self._book.words[STOP] = 1
            self._crew.go_on(now)
            self._watch(now)
        self._figures.seconds = time.monotonic() - began

    def _start(self, group: tuple[int, ...]) -> None:
        incarnation = self._incarnations[group]
        self._incarnations[group] += 1
        chance = random.Random(f"{self.weather.seed}/{group}/{incarnation}")
        backend = chance.choice(self._backends)
        for role in group:
            self._book.page(role)[ENDED] = AT_WORK
        name = "-".join(map(str, group))
        post = Post(
            seed=self.weather.seed,
            incarnation=incarnation,
            roles=group,
            handles=tuple(self._handles[role] for role in group),
            book=str(self._folder / "book"),
            log=str(self._folder / f"log-{name}-{incarnation}"),
            capacity=self.weather.capacity,
            backend=backend,
            period=chance.choice((0.05, 0.05, 1.0)),
            daring=self.weather.daring,
        )
        Path(post.log).touch()
        self._crew.start(post)
        self._figures.starts += 1

    def _bury(self, ended: list[Player]) -> None:
        for player in ended:
            pages = [self._book.page(role) for role in player.post.roles]
            status = self._crew.bury(player)
            own_hand = any(page[DOOMED] == player.pid for page in pages)
            for page in pages:
                page.list_killed(player.pid)
                page[DOOMED] = 0
            if player.said():
                raise Violation(f"{player} has something to say (status {status}):\n{self._first_words(player)}")
            Path(player.post.log).unlink()
            if status == 0:
                if any(page[ENDED] != FINISHED for page in pages):
                    self._start(player.post.roles)
                continue
            if not (player.killed and status == -signal.SIGKILL) and not (
                own_hand and status in (-signal.SIGKILL, -signal.SIGALRM)
            ):
                raise Violation(f"{player} ended with status {status}")
            self._figures.self_kills += own_hand and not player.killed
            self._figures.kills += player.killed
            self._figures.takeovers += 0 in player.post.roles
            self._start(player.post.roles)

    def _first_words(self, player: Player) -> str:
        """What it said, unless it only complains of the death of another one that has more to say."""
        said = [player.said(), *(other.said() for other in self._crew.wait(1.0))]
        return "\n".join(sorted(said, key=lambda words: UNEXPLAINED_DEATH in words))

    # violence

    def _next_deed(self) -> None:
        """The next one comes after so many messages, and at once if they take long."""
        self._deed_after = self._book.page(0)[SENT] + self._chance.choice((5, 20, 50, 100, 200))
        self._deed_at = time.monotonic() + SHORTEST
        self._deed_at_last = self._deed_at + 1.0

    def _do_violence(self, now: float) -> None:
        if now < self._deed_at or (self._book.page(0)[SENT] < self._deed_after and now < self._deed_at_last):
            return
        group, deed = self._chance.choice((self.weather.groups[0], *self.weather.groups)), self._chance.random()
        length = self._chance.choice((0.01, 0.05, 0.2))
        self._next_deed()
        for player in self._crew.players:
            if player.post.roles != group:
                continue
            if deed < 0.7:
                for role in group:
                    self._book.page(role).list_killed(player.pid)
                player.kill()
            elif not player.stopped:
                player.stop(until=now + length)
                self._figures.stops += 1

    # watching

    def _watch(self, now: float) -> None:
        words = [self._book.page(role)[OPERATIONS] for role in range(ROLES)]
        words.append(self._book.page(0)[SENT] + (now if self._book.stopping else 0).__trunc__())
        for i, word in enumerate(words):
            done = i < ROLES and self._book.page(i)[ENDED] == FINISHED
            if word != self._seen[i] or done:
                self._seen[i], self._seen_at[i] = word, now
            elif now - self._seen_at[i] > HANG:
                what = f"role {i}" if i < ROLES else "the stream"
                raise Violation(f"{what} has not moved for {HANG} s")

    def _story(self, violation: Violation) -> str:
        replay = f".ci/storm --seed {self.weather.seed} --seconds {self._seconds:g}"
        lines = [
            f"storm of seed {self.weather.seed}: {violation}",
            f"replay (the same operations, other timing): {replay}",
            str(self.weather),
            str(self._queue.statistics()),
        ]
        for role in range(ROLES):
            page = self._book.page(role)
            lines.append(f"role {role}: {page[OPERATIONS]} operations, ended {page[ENDED]}, {page.counts()}")
        return "\n".join([*lines, *self._crew.traces()])

    def _sum_up(self) -> None:
        pages = [self._book.page(role) for role in range(ROLES)]
        readers = [page.counts() for page in pages[1:]]
        self._figures.messages = self._book.final or 0
        totals = {what: sum(page.counts()[what] for page in pages) for what in pages[0].counts()}
        totals["messages"] = sum(counts["messages"] for counts in readers)
        self._figures.counts = totals
        self._book.close()


def _footprint() -> set[str]:
    """The descriptors of this process, but for the one that lists them."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{entry} -> {os.readlink(f'/proc/self/fd/{entry}')}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command. Its status: 0, or 1 after a violation."""
    parser = argparse.ArgumentParser(prog=".ci/storm", description="Random operations and deaths over one queue.")
    parser.add_argument("--seed", type=int, action="append", help="may be given several times; otherwise 1, 2 and 3")
    parser.add_argument("--seeds", type=int, metavar="N", help="N seeds that were never tried")
    parser.add_argument("--seconds", type=float, help="of each storm; 15, or 60 with --long")
    parser.add_argument("--long", action="store_true", help="ten new seeds, unless said otherwise")
    options = parser.parse_args(arguments)
    seconds: float = options.seconds or (60.0 if options.long else 15.0)
    new: int = options.seeds or (10 if options.long and not options.seed else 0)
    seeds: list[int] = options.seed or [random.SystemRandom().randrange(1 << 32) for _ in range(new)] or [1, 2, 3]
    for seed in seeds:
        try:
            print(Storm(seed, seconds).run().line(), flush=True)
        except Violation as violation:
            print(violation, file=sys.stderr, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
