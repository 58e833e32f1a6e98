"""The ranks that users know, and the places that aiospin numbers from 0: what is said about peers is said in ranks.

Guarantee: a death is raised with the user's rank, and again wherever somebody would wait for the dead, until its place
is taken by a successor. Nothing is looked up for it while nobody has died.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable
from typing import Any, NoReturn

from aiospin import _layout, _roles
from aiospin._errors import AiospinError, PeerDied, QueueClosed, ReaderBusy
from aiospin._stall import Peer, Waiter, tell


class Ranks:
    """Of the readers of one queue, for one end of it."""

    def __init__(self, end: Any, ranks: list[int]) -> None:
        self._end = end
        self._segment = end._segment
        self._ranks = ranks
        self.dead: dict[int, PeerDied] = {}  # by role: whose death was told, as the end has told it
        self._told: dict[int, int] = {}  # role -> pid of whose death was told last
        self._untold = False  # there may be deaths that the end knows and nobody was told
        self.stalls = Told()
        end._tell = _teller(ranks, self.stalls)

    def raise_for(self, error: AiospinError) -> NoReturn:
        """Raise what an end has raised, in the words of this package: RuntimeError("cancelled") after its shutdown."""
        if isinstance(error, QueueClosed) and self._end.closed:
            raise RuntimeError("cancelled") from None
        if isinstance(error, PeerDied):
            role = _role_of(error)
            self.dead[role] = PeerDied(*error.args)  # never raised itself: a traceback would keep all that it leads to
            self._told[role] = error.pid
            raise PeerDied(None if error.rank is None else self._ranks[error.rank], *error.args[1:]) from None
        if isinstance(error, QueueClosed):
            raise QueueClosed(f"{self.own_name}: the writer has shut down, and all that it sent was received") from None
        if isinstance(error, ReaderBusy):
            raise ReaderBusy(f"another task or thread is receiving as {self.own_name}") from None
        raise error

    @property
    def own_name(self) -> str:
        """This end, as the user calls it."""
        return "the writer" if self._end.rank is None else f"reader {self._ranks[self._end.rank]}"

    def is_over(self, error: AiospinError) -> bool:
        """Whether that is a death that was told before, and its place is not empty any more: no reason to give up."""
        if not isinstance(error, PeerDied) or self._told.get(_role_of(error)) != error.pid:
            return False
        with self._in_reach():
            return not self._is_empty(_role_of(error))

    def refuse_to_wait_for_the_dead(self) -> None:
        """PeerDied for a death that was told and whose place is still empty, as the end would raise it."""
        if not self.dead:
            return
        with self._in_reach():
            for role, error in tuple(self.dead.items()):
                if self._is_empty(role):
                    raise PeerDied(*error.args)
                del self.dead[role]

    def look_for_deaths(self) -> None:
        """PeerDied for a death that was not told, as the end would raise it. A wait of another thread hears of it too.

        The end by itself tells a death when it has to wait. Then it tells this one once more; see `is_over`.
        """
        with self._in_reach():
            if self._end._look_for_deaths():
                self._untold = True
            if not self._untold:
                return
            for role in self._end._peer_roles():
                pid = self._end._peers.pid(role)
                if self._is_empty(role) and self._end._concerns(role) and self._told.get(role) != pid:
                    raise PeerDied(_layout.role_rank(role), pid)
            self._untold = False

    def absent(self) -> list[int]:
        """Ranks at whose places nobody has been yet."""
        with self._in_reach():
            places = range(len(self._ranks))
            return [self._ranks[place] for place in places if self._seat(_layout.reader_role(place)).tenure == 0]

    def writer_died(self) -> PeerDied | None:
        """The writer's death, if its place is empty and was not left on purpose."""
        with self._in_reach():
            seat = self._seat(_layout.WRITER)
            if not seat.present or _roles.holder(self._segment, _layout.WRITER) is not None:
                return None
            return PeerDied(None, seat.pid)

    @contextlib.contextmanager
    def _in_reach(self) -> Generator[None]:
        """Look at the segment: who keeps the tenancy keeps it mapped, though another thread shuts the end down now."""
        tenancy = self._end._tenancy
        if tenancy is None:
            raise RuntimeError("cancelled")
        try:
            yield
        finally:
            del tenancy  # not with the traceback of what was raised: the role is given up with it

    def _is_empty(self, role: int) -> bool:
        """Whether its holder has died and nobody has come since."""
        return _roles.holder(self._segment, role) is None and self._seat(role).present

    def _seat(self, role: int) -> _roles.Seat:
        return _roles.seat(self._segment, role)


def _role_of(error: PeerDied) -> int:
    """Whose death it is, as an end tells it."""
    return _layout.WRITER if error.rank is None else _layout.reader_role(error.rank)


class Told:
    """Whether stalls are told now."""

    on = True


def _teller(ranks: list[int], told: Told) -> Callable[[Waiter, Iterable[Peer], float], None]:
    """Logs a stall with these ranks. Refers to no end, which refers to it."""
    names = {_layout.role_name(_layout.reader_role(place)).replace(" ", "_"): rank for place, rank in enumerate(ranks)}

    def tell_ranks(waiter: Waiter, peers: Iterable[Peer], waited: float) -> None:
        if not told.on:
            return
        if waiter.rank is not None:
            waiter = dataclasses.replace(waiter, rank=ranks[waiter.rank])
        renamed = (
            dataclasses.replace(peer, role=f"reader_{names[peer.role]}") if peer.role in names else peer
            for peer in peers
        )
        tell(waiter, renamed, waited)

    return tell_ranks
