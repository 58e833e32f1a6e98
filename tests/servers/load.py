"""`python -m tests.servers.load`: the model server under load on each pool, a worker killed in every trial.

Closed-loop clients ask over HTTP; every request must be answered once, with its own name and the right label, or
refused in so many words (503, 504, which are counted). Pools are interleaved: in each round each plays once, on a fresh
server. What a kill does to the peers is printed beside what it does to aiospin, and is not judged: the exit code is 1
when aiospin's pool gave reason to complain, and 0 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import uvloop

from aiospin.bench.machine import describe_machine

from .pool_names import POOLS
from .samples import samples_for
from .server import serving
from .table import aligned, number, spread
from .trial import idle, play

JUDGED = "aiospin"


async def _round(pool: str, model: str, args: argparse.Namespace) -> dict[str, Any]:
    """All trials of a pool, on one server."""
    samples = samples_for(model)
    trials = []
    async with serving(pool, model, args.workers) as server:
        for clients in args.clients:
            print(f"{model} on {pool}: {clients} clients for {args.seconds:g} s", file=sys.stderr, flush=True)
            outcome = await play(server, samples, clients=clients, seconds=args.seconds, kill=not args.no_kill)
            trials.append(outcome.as_json())
        rest = await idle(server, args.idle_seconds)
        health = (await server.health())["status"]
    return {"trials": trials, "idle_cpu_percent": rest, "health": health, "end": server.how_it_ended}


def _mebibytes(nbytes: float) -> str:
    return f"{nbytes / (1 << 20):.1f}"


def _print_trials(clients: int, at: int, rounds: dict[str, list[dict[str, Any]]]) -> None:
    head = ["", "answered/s", "/ executor", "/ mp_queue", "p50 ms", "p99 ms", "max ms", "asked", "503", "504"]
    head += ["failed", "complaints", "longest gap s", "CPU %", "server MiB", "server KiB/s", "workers KiB/s"]
    table = [head]
    for pool, played in rounds.items():
        trials = [one["trials"][at] for one in played]
        row = [pool, spread(trial["per_s"] for trial in trials)]
        for peer in ("executor", "mp_queue"):
            theirs = [one["trials"][at] for one in rounds.get(peer, [])]
            pairs = zip(trials, theirs, strict=False)
            row.append(spread(ours["per_s"] / other["per_s"] for ours, other in pairs if other["per_s"]))
        row += [spread(trial[figure] for trial in trials) for figure in ("p50_ms", "p99_ms", "max_ms")]
        row.append(str(sum(trial["asked"] for trial in trials)))
        row += [str(sum(trial["refused"].get(status, 0) for trial in trials)) for status in (503, 504)]
        row.append(str(sum(sum(trial["failures"].values()) for trial in trials)))
        row.append(str(sum(trial["complaint_count"] for trial in trials)))
        row.append(spread(trial["longest_gap"] for trial in trials))
        row.append(number(median(trial["cpu_percent"] for trial in trials)))
        grown = [trial["server_growth"] for trial in trials if trial["server_growth"] is not None]
        row.append(
            " -> ".join(_mebibytes(median(g[end] for g in grown)) for end in ("first", "last")) if grown else "-"
        )
        row.append(spread(growth["private_slope"] / 1024 for growth in grown))
        row.append(spread(g["private_slope"] / 1024 for trial in trials for g in trial["workers_growth"]))
        table.append(row)
    print(f"\n{clients} client{'s' * (clients > 1)}")
    print("\n".join(aligned(table)))


def _print_rest(rounds: dict[str, list[dict[str, Any]]]) -> None:
    table = [["", "idle server CPU %", "idle workers CPU %", "health at the end", "the server's end"]]
    for pool, played in rounds.items():
        rest = [one["idle_cpu_percent"] for one in played]
        row = [pool, *(spread(of[who] for of in rest) for who in ("server", "workers"))]
        table.append([*row, *(", ".join(sorted({one[what] for one in played})) for what in ("health", "end"))])
    print("\nafterwards")
    print("\n".join(aligned(table)))
    for pool, played in rounds.items():
        for line in dict.fromkeys(line for one in played for trial in one["trials"] for line in trial["complaints"]):
            print(f"  {pool}: {line}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.load", description="Load model servers.")
    parser.add_argument("--pool", action="append", choices=POOLS, help="only this (repeatable)")
    parser.add_argument("--model", action="append", help="magika, noop or noop:MILLISECONDS (repeatable); magika")
    parser.add_argument("--clients", type=int, action="append", help="at once (repeatable); 1, 8 and 64")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each trial")
    parser.add_argument("--idle-seconds", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-kill", action="store_true", help="let all workers live")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of tables")
    args = parser.parse_args(argv)
    args.clients = args.clients or [1, 8, 64]

    machine = describe_machine()
    if not args.json:
        for key, value in machine.items():
            print(f"{key}: {value}")
    results = {}
    for model in args.model or ["magika"]:
        rounds: dict[str, list[dict[str, Any]]] = {pool: [] for pool in args.pool or POOLS}
        for _ in range(args.rounds):
            for pool, played in rounds.items():
                played.append(uvloop.run(_round(pool, model, args)))
        results[model] = rounds
        if not args.json:
            killed = "nobody killed" if args.no_kill else "one killed in the middle of each trial"
            print(f"\n{model}, {args.workers} workers, {killed}, {args.seconds:g} s each")
            for at, clients in enumerate(args.clients):
                _print_trials(clients, at, rounds)
            _print_rest(rounds)
    if args.json:
        print(json.dumps({"machine": machine, "seconds": args.seconds, "models": results}, indent=1))
    judged = [trial for rounds in results.values() for one in rounds.get(JUDGED, []) for trial in one["trials"]]
    return 1 if any(trial["complaint_count"] for trial in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
