"""`aiospin ls` and `aiospin unlink`: the named segments of this user, and taking away those that nobody uses."""

from __future__ import annotations

import argparse
import functools
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiospin import _named
from aiospin._errors import AttachError
from aiospin.cli.report import printable, size
from aiospin.cli.streams import tell

if TYPE_CHECKING:
    from aiospin._named import Named

_HEADINGS = ("NAME", "STATE", "SIZE", "READERS", "OWNER", "USED BY")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = subparsers.add_parser(
        "ls",
        help="list this user's named segments",
        description="List this user's named segments: who uses them, and which are orphans.",
    )
    _add_directory(listing)
    listing.add_argument("--json", action="store_true", help="print one JSON list")
    listing.set_defaults(run=_list)

    unlinking = subparsers.add_parser(
        "unlink",
        help="remove named segments that nobody uses",
        description="Remove named segments that nobody uses. One that some process has open is never removed.",
    )
    unlinking.add_argument("segments", nargs="*", metavar="SEGMENT", help="name in the directory, or path")
    unlinking.add_argument("--all", action="store_true", help="every orphan in the directory")
    _add_directory(unlinking)
    unlinking.set_defaults(run=functools.partial(_unlink, parser=unlinking))


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help=f"where they are (AIOSPIN_DIR, or else /dev/shm/aiospin-{os.geteuid()})",
    )


def _list(args: argparse.Namespace) -> int:
    directory = _named.where(args.directory)
    try:
        found = _named.find(directory)
    except OSError as error:
        return _fail(f"{directory}: {error.strerror}")
    if args.json:
        print(json.dumps([asdict(segment) | {"name": segment.name} for segment in found], indent=2))
        return 0
    if not found:
        print(f"no named segments in {printable(directory)}")
        return 0
    rows = [_HEADINGS, *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _row(segment: Named) -> tuple[str, ...]:
    users = ", ".join(f"{who} {pid or '?'}" for who, pid in segment.users.items())
    return (
        printable(segment.name),
        segment.state,
        size(segment.bytes),
        "?" if segment.readers is None else str(segment.readers),
        str(segment.owner or "?"),
        "; ".join(filter(None, (users, segment.damage and printable(segment.damage)))) or "-",
    )


def _unlink(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if bool(args.segments) == args.all:
        parser.error("name the segments, or say --all")
    if "" in args.segments:
        parser.error("a segment's name is empty")
    directory = _named.where(args.directory)
    if not args.all:
        failures = [_unlink_one(name if "/" in name else os.path.join(directory, name)) for name in args.segments]
        return max(failures)
    try:
        orphans = [segment.path for segment in _named.find(directory) if segment.state == "orphan"]
    except OSError as error:
        return _fail(f"{directory}: {error.strerror}")
    if not orphans:
        print(f"no orphans in {printable(directory)}")
    return max(map(_unlink_one, orphans), default=0)


def _unlink_one(path: str) -> int:
    try:
        freed = _named.unlink(path)
    except (_named.InUse, AttachError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{path}: {error.strerror}")
    print(f"removed {printable(path)}: {size(freed)}")
    return 0


def _fail(text: str) -> int:
    tell(f"aiospin: {printable(text)}")
    return 1
