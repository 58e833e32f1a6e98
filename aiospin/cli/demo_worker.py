"""A worker process of the demo: awaits files on its reader, answers on a queue of its own.

Guarantee: it ends by itself when the front end closes the queue or dies, at whatever point; it leaves Ctrl-C to the
front end. Assumption: it is started with SIGINT blocked, so that none can hit it before it ignores them.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from aiospin import PeerDied, QueueClosed
from aiospin._children import ignore_sigint
from aiospin.bench.loops import run
from aiospin.cli.demo_wire import Answer, split_file

if TYPE_CHECKING:
    from aiospin import QueueReader, QueueWriter

CHUNK = 1 << 20
_NEWLINE = re.compile(b"\n")


def count_lines(body: memoryview) -> int:
    """Newlines in `body`, found in place: a regular expression searches any buffer, `bytes.count` only its own.

    By chunks, since `findall` keeps a pointer per match.
    """
    return sum(len(_NEWLINE.findall(body[start : start + CHUNK])) for start in range(0, len(body), CHUNK))


def answer_for(rank: int, message: memoryview) -> Answer:
    """The answer to one file message. No view of `message` outlives the call, so its slot can go back."""
    index, body = split_file(message)
    return Answer(rank, index, count_lines(body), hashlib.sha256(body).digest())


async def serve(queue: QueueReader[bytes], answers: QueueWriter[bytes], rank: int) -> None:
    """Answers every file until the queue ends."""
    with queue, answers:
        try:
            while True:
                slot = await queue.acquire_read()
                with slot:
                    answer = answer_for(rank, slot.data)
                await answers.aput(answer.pack())
        except (QueueClosed, PeerDied):
            return


def work(queue: QueueReader[bytes], answers: QueueWriter[bytes], rank: int, loop: str) -> None:
    """The process's entry point."""
    ignore_sigint()
    run(serve(queue, answers, rank), loop)
