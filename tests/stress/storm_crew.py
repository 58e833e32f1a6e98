"""The processes of a storm, as the conductor has them: started, killed, stopped, buried.

Guarantee: a pid is used only through a pidfd of a process that was not buried, so that a signal hits nobody else.
Leaving the `with` kills and buries everybody, and ends the nurseries. Assumption: none.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from storm_post import Post

_NURSERY = Path(__file__).resolve().parent / "storm_nursery.py"
_pause = threading.Event()


class _Nursery:
    """A process that forks the others, on one backend."""

    def __init__(self, backend: str) -> None:
        choosing = ("AIOSPIN_NO_EXTENSIONS", "AIOSPIN_REQUIRE_EXTENSIONS")
        environment = {name: value for name, value in os.environ.items() if name not in choosing}
        environment["AIOSPIN_NO_EXTENSIONS" if backend == "fallback" else "AIOSPIN_REQUIRE_EXTENSIONS"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(_NURSERY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "a nursery has ended"
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@dataclass
class Player:
    """A process that plays a post."""

    post: Post
    pid: int
    pidfd: int
    nursery: _Nursery = field(repr=False)
    killed: bool = False
    stopped: bool = False
    stopped_until: float = 0.0

    def signal(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self.pidfd, number)

    def kill(self) -> None:
        self.killed = True
        self.signal(signal.SIGKILL)

    def stop(self, until: float) -> None:
        self.stopped, self.stopped_until = True, until
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.stopped = False
        self.signal(signal.SIGCONT)

    def said(self) -> str:
        """What stands in its log: nothing, if all is well."""
        return Path(self.post.log).read_text(encoding="utf-8", errors="replace")

    def __str__(self) -> str:
        return f"the {self.post.backend} process {self.pid} of roles {self.post.roles}, its {self.post.incarnation}th"


class Crew:
    """All of them."""

    def __init__(self, backends: Iterable[str]) -> None:
        self.players: list[Player] = []
        self._nurseries = {backend: _Nursery(backend) for backend in backends}

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for player in list(self.players):
            player.kill()
            self.bury(player)
        for nursery in self._nurseries.values():
            nursery.close()

    def start(self, post: Post) -> None:
        nursery = self._nurseries[post.backend]
        pid = nursery.ask({"start": asdict(post)})["pid"]
        self.players.append(Player(post, pid, os.pidfd_open(pid), nursery))

    def wait(self, seconds: float) -> list[Player]:
        """Those that have ended, after up to so many seconds."""
        poll = select.poll()
        for player in self.players:
            poll.register(player.pidfd, select.POLLIN)
        ended = {fd for fd, _ in poll.poll(seconds * 1000)}
        return [player for player in self.players if player.pidfd in ended]

    def bury(self, player: Player) -> int:
        """Its exit status, or the negative number of the signal that has killed it."""
        status: int = player.nursery.ask({"bury": player.pid})["status"]
        os.close(player.pidfd)
        self.players.remove(player)
        return status

    def go_on(self, now: float) -> None:
        """Let those go on that were stopped for long enough."""
        for player in self.players:
            if player.stopped and player.stopped_until <= now and not player.killed:
                player.go_on()

    def traces(self) -> list[str]:
        """Where every thread of every process is."""
        traces = []
        for player in self.players:
            player.go_on()
            player.signal(signal.SIGUSR1)
        _pause.wait(1.0)
        for player in self.players:
            traces.append(f"---- {player}\n{player.said()}")
        return traces
