"""`aiospin demo [PATH]`: the library at its main job, on real files.

A front end sends every file under PATH through one broadcast queue to worker processes; each computes SHA-256 and
line count in place and answers on a queue of its own; the front end checks every answer. Then all of them idle.

Guarantee: however it ends (done, an error, Ctrl-C, a worker's death), no process, descriptor or shared memory is left.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sysconfig
from dataclasses import dataclass
from typing import Any

import aiospin
from aiospin._backend import rung
from aiospin.bench.loops import LOOPS, run
from aiospin.cli.demo_crew import Crew, WorkerDied
from aiospin.cli.demo_front import FrontEnd, Outcome
from aiospin.cli.demo_sources import Sources
from aiospin.cli.interrupt import Interrupt
from aiospin.cli.report import Progress, as_json, as_table, percentiles
from aiospin.cli.streams import tell, write_result

ANSWERS_CAPACITY = "64 KiB"


class BadOption(Exception):
    """An option's value that only its use showed to be bad."""


@dataclass(frozen=True)
class Options:
    path: str
    without: frozenset[str]
    workers: int
    capacity: str
    loop: str
    window: int
    idle: float
    json: bool


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="send files to worker processes and check what they answer",
        description="Send every file under PATH through one queue to worker processes, check their answers, then idle.",
    )
    parser.add_argument("path", nargs="?", metavar="PATH", help="folder or file (default: Python's standard library)")
    parser.add_argument("--workers", type=_positive, default=2, metavar="N", help="worker processes (2)")
    parser.add_argument("--capacity", default="16 MiB", metavar="SIZE", help="bytes of the ring (16 MiB)")
    parser.add_argument("--loop", choices=LOOPS, default="uvloop", help="event loop of every process (uvloop)")
    parser.add_argument("--window", type=_positive, default=8, metavar="N", help="files under way at once (8)")
    parser.add_argument("--idle", type=_seconds, default=3.0, metavar="SECONDS", help="how long to idle after it (3)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not (0 <= value < math.inf):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _run(args: argparse.Namespace) -> int:
    path, without = args.path, frozenset[str]()
    if path is None:
        path, without = sysconfig.get_path("stdlib"), frozenset({"site-packages", "dist-packages"})
    elif not (os.path.isdir(path) or os.path.isfile(path)):
        return _fail(f"{path!r} is neither a folder nor a file", 2)
    return run_demo(Options(path, without, args.workers, args.capacity, args.loop, args.window, args.idle, args.json))


def run_demo(options: Options) -> int:
    """Plays the demo and prints its result on stdout; returns the exit code.

    KeyboardInterrupt after a Ctrl-C, once everything is gone.
    """
    try:
        with Interrupt() as interrupt:
            result = _play(options, interrupt)
    except BadOption as error:
        return _fail(str(error), 2)
    except (WorkerDied, aiospin.AiospinError, OSError) as error:
        return _fail(str(error), 1)
    if why := write_result(as_json(result) if options.json else as_table(result)):
        return _fail(why, 1)
    return 0 if result["lost"] == 0 and not result["wrong"] else 1


def _play(options: Options, interrupt: Interrupt) -> dict[str, Any]:
    progress = Progress()
    with contextlib.ExitStack() as stack:
        try:
            queue = stack.enter_context(aiospin.Queue[bytes](readers=options.workers, capacity=options.capacity))
        except (ValueError, TypeError, aiospin.SegmentTooLarge) as error:
            raise BadOption(str(error)) from error
        answers = [
            stack.enter_context(aiospin.Queue[bytes](readers=1, capacity=ANSWERS_CAPACITY))
            for _ in range(options.workers)
        ]
        # claimed before the workers start, so that they notice when this process is killed
        writer = stack.enter_context(queue.writer())
        readers = [stack.enter_context(each.reader(0)) for each in answers]
        progress.stage(f"starting {options.workers} workers")
        crew = stack.enter_context(Crew(queue, answers, options.loop))
        # and closed before the workers are waited for: that is what ends them
        for endpoint in (writer, *readers):
            stack.callback(endpoint.close)
        sources = Sources(options.path, options.without)

        async def play() -> Outcome:
            with interrupt.cancel_here():
                front = FrontEnd(queue, writer, readers, crew, sources, options.window, progress)
                return await front.run(options.idle)

        outcome = run(play(), options.loop)
        pids = [os.getpid(), *(process.pid for process in crew.processes)]
    return _result(options, outcome, pids, sources)


def _result(options: Options, outcome: Outcome, pids: list[int | None], sources: Sources) -> dict[str, Any]:
    seconds = outcome.seconds
    names = ["front end", *(f"worker {rank}" for rank in range(options.workers))]
    return {
        "files": outcome.files,
        "bytes": outcome.nbytes,
        "verified": outcome.verified,
        "lost": outcome.lost,
        "messages_per_s": outcome.files / seconds if seconds else 0.0,
        "gb_per_s": outcome.nbytes / seconds / 1e9 if seconds else 0.0,
        "seconds": seconds,
        "latency_us": percentiles(outcome.latencies),
        "idle_cpu_percent": sum(each or 0.0 for each in outcome.idle_cpu_percent) if options.idle else None,
        "backend": aiospin.backend,
        "rung": rung(),
        "loop": options.loop,
        "workers": options.workers,
        "capacity": options.capacity,
        "window": options.window,
        "processes": [
            {"name": name, "pid": pid, "cpu_seconds": cpu, "idle_cpu_percent": idle}
            for name, pid, cpu, idle in zip(names, pids, outcome.cpu_seconds, outcome.idle_cpu_percent, strict=True)
        ],
        "unreadable": [{"path": path, "reason": reason} for path, reason in sources.unreadable],
        "wrong": outcome.wrong,
    }


def _fail(message: str, code: int) -> int:
    tell(f"aiospin demo: {message}")
    return code
