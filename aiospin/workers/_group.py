"""WorkerGroup: N processes that each host one object, called like it from an event loop.

Guarantee: a call ends with the worker's result, with its exception, or with an error that says why there is neither; a
worker's death ends no call silently, and its successor takes what had not begun. When the `async with` is left, the
processes have ended.
Assumption: used from one event loop.
"""

from __future__ import annotations

import asyncio
import pickle
import reprlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

from aiospin._deadline import require_seconds
from aiospin._policy import WaitPolicy, resolve
from aiospin._preflight import usable_cpus
from aiospin.workers import _body, _process
from aiospin.workers._calls import Answer, Parts
from aiospin.workers._child import Spec
from aiospin.workers._crew import Crew, Rules
from aiospin.workers._envelope import Flag
from aiospin.workers._link import Making
from aiospin.workers._options import Delivery, Options
from aiospin.workers._place import Place
from aiospin.workers._restart import Restart
from aiospin.workers._survey import GroupStatistics

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")

Rank = int | Literal["any"]
_LONGEST_NAME: Final = 1000  # characters


class Caller(Generic[W]):
    """Calls workers, with options. `WorkerGroup` is one, and `options()` gives others."""

    def __init__(self, crew: Crew, options: Options) -> None:
        self._crew = crew
        self._options = options

    def options(
        self,
        *,
        timeout: float | None = ...,  # type: ignore[assignment]
        delivery: Delivery = ...,  # type: ignore[assignment]
        kill_after: float | None = ...,  # type: ignore[assignment]
        in_place: bool = ...,  # type: ignore[assignment]
    ) -> Caller[W]:
        """The same workers, called with other options; those that are not given stay as they are.

        timeout     seconds for each call, waiting for its turn included; None for ever. The built-in TimeoutError
        delivery    "at_most_once": a call that had begun when its worker died fails with WorkerDied.
                    "at_least_once": it is given to the successor, `max_deliveries` times in all; arguments must not be
                    changed before the call has ended
        kill_after  seconds after which a worker that is still busy with a call that was given up is killed; None never
        in_place    True: arrays and buffers of answers are read-only views of the ring, not copies. Let go of them
        soon:
                    room is given back in order, so that one which is kept stops the worker's answers in the end
        """
        given: dict[str, object] = {
            "timeout": timeout,
            "delivery": delivery,
            "kill_after": kill_after,
            "in_place": in_place,
        }
        changed = {name: value for name, value in given.items() if value is not ...}
        return Caller(self._crew, self._options.changed(changed))

    @overload
    async def call(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> list[R]: ...
    @overload
    async def call(self, method: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> list[R]: ...
    @overload
    async def call(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]: ...
    async def call(self, method: Any, /, *args: Any, **kwargs: Any) -> list[Any]:
        """Run a method on every worker, and return what each returned, in the order of ranks.

        The arguments are published once, to all. As soon as one worker raises, the others are told to give up, and that
        exception is raised here. Cancelling the call gives it up everywhere.
        """
        answers = [Answer(self._crew.future(), keeps=True) for _ in range(self._crew.size)]
        calls = self._crew.ask_all(_name_of(method), args, kwargs, answers, self._options)
        try:
            return list(await asyncio.gather(*(answer.future for answer in answers)))
        finally:
            self._crew.give_up(*calls)

    @overload
    async def call_one(
        self,
        rank: Rank,
        method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def call_one(
        self, rank: Rank, method: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def call_one(self, rank: Rank, method: str, /, *args: Any, **kwargs: Any) -> Any: ...
    async def call_one(self, rank: Any, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method on one worker: that of a rank, or with "any" the one with the least to do.

        Raises what the method raises, with the worker's traceback as its cause; WorkerDied, TimeoutError, and
        QueueClosed once the group is closed. Cancelling cancels an async method; a sync one runs on for nobody.
        """
        answer = Answer(self._crew.future())
        call = self._crew.ask(rank, _name_of(method), args, kwargs, answer, self._options)
        try:
            return await answer.future
        finally:
            if not answer.future.done() or answer.future.cancelled():
                self._crew.give_up(call)

    @overload
    def stream(
        self, rank: Rank, method: Callable[Concatenate[Any, P], AsyncIterator[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[R]: ...
    @overload
    def stream(
        self, rank: Rank, method: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[Any]: ...
    @overload
    def stream(self, rank: Rank, method: str, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]: ...
    async def stream(self, rank: Any, method: Any, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """What a generator method of one worker yields, part by part, as it comes.

        Leaving the loop early gives the rest up. Parts that wait to be taken are kept here without a bound.
        """
        parts = Parts()
        call = self._crew.ask(rank, _name_of(method), args, kwargs, parts, self._options, flags=Flag.STREAM)
        try:
            while True:
                try:
                    part = await parts.take()
                except StopAsyncIteration:
                    return
                yield part
        finally:
            self._crew.give_up(call)


class WorkerGroup(Caller[W]):
    """Workers as an async context manager.

    factory, n      what each of the n processes constructs, once: a class, or a function that returns the object
    args, kwargs    for the factory; they travel pickled, like the factory itself
    start_method    "spawn", "forkserver" or "fork"
    codec           of arguments and results: "msgpack", or "pickle" by name
    capacity        bytes of each of the rings: two for every worker, one for all
    policy          how waits idle, as for Queue
    restart         what becomes of a worker that died: a Restart, or None to leave its rank empty
    max_deliveries  how many workers a call may be given to under "at_least_once", one after the other dying of it
    max_pending     calls that may be pending, a `call` counting once for each worker; one more raises Full at once.
                    None for no limit
    pipeline        calls that a worker is given at once: the next ones ahead of their turn or, with async methods,
                    those that run beside each other. None for as many as take a worker about a millisecond, one at
                    least, and for 64 with async methods
    cpus            None; "spread", one CPU for each by turns; or a set of CPUs for each
    threads         what OMP_NUM_THREADS and its like are set to for workers, where the user has not set them;
                    "share" gives each its part of the CPUs, None leaves them alone
    timeout, delivery, kill_after, in_place   as for `options`, for every call
    start_timeout   seconds for all workers to become ready; None for ever. A start that takes long is logged
    drain_timeout   seconds for calls under way when the group is closed; None for ever. Then the objects are closed,
                    for which there is what is left of it, and 5 s at least

    Entering starts the processes and waits until each has constructed its object; StartFailed says which could not,
    with the exception as its cause. Leaving lets calls under way end, calls the objects' `close()` or `aclose()`, and
    ends the processes; when an exception leaves the block, calls under way are given up instead.

    A worker that gets a SIGTERM ends the call that it runs, closes its object, and is succeeded; Ctrl-C reaches only
    the group's own process, and workers end with that however it ends.
    """

    def __init__(
        self,
        factory: Callable[..., W],
        n: int,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        start_method: str = "spawn",
        codec: str = "msgpack",
        capacity: int | str = "4 MiB",
        policy: WaitPolicy | str | None = None,
        restart: Restart | None = Restart(),  # noqa: B008 - frozen
        max_deliveries: int = 2,
        max_pending: int | None = None,
        pipeline: int | None = None,
        cpus: Literal["spread"] | Sequence[frozenset[int] | set[int]] | None = None,
        threads: int | Literal["share"] | None = "share",
        timeout: float | None = None,
        delivery: Delivery = "at_most_once",
        kill_after: float | None = None,
        in_place: bool = False,
        start_timeout: float | None = None,
        drain_timeout: float | None = 30.0,
    ) -> None:
        _require_count("n", n)
        _require_count("max_deliveries", max_deliveries)
        for name, count in (("max_pending", max_pending), ("pipeline", pipeline)):
            if count is not None:
                _require_count(name, count)
        if restart is not None and not isinstance(restart, Restart):
            raise TypeError(f"restart must be a Restart or None, got {restart!r}")
        if start_method not in _process.START_METHODS:
            raise ValueError(f"start_method must be one of {', '.join(_process.START_METHODS)}, got {start_method!r}")
        if not callable(factory):
            raise TypeError(f"factory must be a class or function, got {factory!r}")
        options = Options(timeout, delivery, kill_after, in_place)
        require_seconds("start_timeout", start_timeout)
        require_seconds("drain_timeout", drain_timeout)
        self._start_timeout, self._drain_timeout = start_timeout, drain_timeout
        construct = _pickled(factory, args, kwargs or {})
        chosen = _choose_cpus(cpus, n)
        usable = _count_cpus(chosen)
        if threads == "share":
            threads = max(1, usable // n)
        elif threads is not None:
            _require_count("threads", threads)
        makings = [
            Making(
                spec=Spec(construct, codec, of_one, Place(rank, n), _process.thread_counts(threads)),
                method=start_method,
                capacity=capacity,
                policy=_share_policy(resolve(policy), n, usable),
                pipeline=pipeline,
                label=f"worker-of-{getattr(factory, '__name__', 'factory')}",
            )
            for rank, of_one in enumerate(chosen)
        ]
        super().__init__(Crew(makings, _body.find(codec), Rules(restart, max_deliveries, max_pending)), options)

    @property
    def size(self) -> int:
        """How many workers it has."""
        return self._crew.size

    @property
    def pids(self) -> tuple[int, ...]:
        """The process of each rank; 0 while there is none."""
        return self._crew.pids

    def statistics(self) -> GroupStatistics:
        """How each rank stands, and how many calls wait."""
        return self._crew.statistics()

    async def restart(self, rank: int) -> None:
        """Replace a worker: it ends what it has, its successor is started, and this returns when that is ready.

        Calls for any worker go to the others meanwhile, calls for this rank wait. A rank that was given up is tried
        anew. Cancelling stops waiting, not the restart. StartFailed when no successor came up.
        """
        await self._crew.restart(rank)

    async def start(self) -> None:
        """Start the workers, and wait until all are ready. For those who cannot write `async with`; then `aclose`."""
        await self._crew.start(self._start_timeout)

    async def __aenter__(self) -> WorkerGroup[W]:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._crew.stop(0.0 if error is not None else self._drain_timeout)

    async def aclose(self) -> None:
        """Drain and end the workers. Idempotent."""
        await self._crew.stop(self._drain_timeout)


def _name_of(method: Any) -> str:
    name = method if isinstance(method, str) else getattr(method, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"a method or its name is called, not {method!r}")
    if not name.isidentifier() or name.startswith("_") or len(name) > _LONGEST_NAME:
        raise AttributeError(f"{reprlib.repr(name)} is not the name of a public method")
    return name


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _choose_cpus(cpus: Any, n: int) -> list[frozenset[int] | None]:
    if cpus is None:
        return [None] * n
    allowed = sorted(_process.allowed_cpus())
    if cpus == "spread":
        return [frozenset({allowed[rank % len(allowed)]}) for rank in range(n)]
    chosen = [frozenset(of_one) for of_one in cpus]
    if len(chosen) != n:
        raise ValueError(f"cpus must name a set of CPUs for each of {n} workers, got {len(chosen)}")
    for of_one in chosen:
        if not of_one or not of_one <= set(allowed):
            raise ValueError(f"cpus must be among those that this process may use ({allowed}), got {sorted(of_one)}")
    return list(chosen)


def _pickled(factory: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise TypeError(f"args must be a sequence of arguments for the factory, got {args!r}")
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs must map names to arguments for the factory, got {kwargs!r}")
    try:
        return pickle.dumps((factory, tuple(args), dict(kwargs)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        what = f"factory {factory!r}, its args and kwargs"
        raise TypeError(f"{what} travel to the workers pickled, which fails: {error}") from error


def _count_cpus(chosen: Sequence[frozenset[int] | None]) -> int:
    """How many CPUs the workers have between them, with what a cgroup allows."""
    named: set[int] = set()
    for of_one in chosen:
        named.update(of_one or _process.allowed_cpus())
    return max(1, min(len(named), usable_cpus()))


def _share_policy(policy: WaitPolicy, n: int, usable: int) -> WaitPolicy:
    """The policy of one worker. Those who share a CPU share the time for which one may watch in vain, too."""
    if n <= usable:
        return policy
    if not policy.parks:
        raise ValueError(f"policy {policy.name!r} never parks: {n} workers would spin on {usable} CPUs")
    return policy.replace(core_share=policy.core_share * usable / n)
