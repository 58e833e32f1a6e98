"""Runs coroutines to an end that leaves nothing: on a fresh event loop, and beside others that must not fail.

Guarantee: `run` closes its loop whatever happens; tasks that are left are cancelled and awaited first, so their
`finally` blocks run. It takes no signal: who wants Ctrl-C handled sets a handler before. On every Python from 3.10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

LOOPS = ("uvloop", "asyncio")


async def _finish(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def run(main: Coroutine[Any, Any, T], loop: str) -> T:
    """Run `main` to its end on a new loop, `loop` being one of LOOPS, and return its result."""
    event_loop = uvloop.new_event_loop() if loop == "uvloop" else asyncio.new_event_loop()
    try:
        return event_loop.run_until_complete(main)
    finally:
        try:
            event_loop.run_until_complete(_finish(event_loop))
        finally:
            event_loop.close()


async def guarded(main: Awaitable[T], *guards: Awaitable[object]) -> T:
    """`main`'s result, unless a guard raises first: then its exception. All of them have ended on return.

    A guard that returns is no longer asked. Cancelled, it cancels them all.
    """
    working = asyncio.ensure_future(main)
    watching = {asyncio.ensure_future(guard) for guard in guards}
    everyone = (working, *watching)
    try:
        while not working.done():
            done, _ = await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
            for guard in done & watching:
                guard.result()
            watching -= done
        return working.result()
    finally:
        for each in everyone:
            each.cancel()
        await asyncio.gather(*everyone, return_exceptions=True)
