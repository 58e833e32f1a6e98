"""A small model server: an asyncio front end, a worker that "generates", and answers that stream back word by word.

Many tasks share one writer; they are served in turn. One task reads the worker's answers and hands each to the request
that it belongs to. It prints:

    request 0: the quick brown fox
    request 1: pack my box
    request 2: jackdaws love my big sphinx
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from multiprocessing import get_context

import uvloop

import aiospin

PROMPTS = ("the quick brown fox", "pack my box", "jackdaws love my big sphinx")

Request = tuple[int, str]
Token = tuple[int, str]  # an empty word ends the answer


def generate(requests: aiospin.QueueReader[Request], tokens: aiospin.QueueWriter[Token]) -> None:
    """Answer each request with its own words, one message a word."""
    with requests, tokens:
        for number, prompt in requests:
            for word in (*prompt.split(), ""):
                tokens.put((number, word))


class Front:
    """The asyncio side: `ask` may be called by any number of tasks at once."""

    def __init__(self, writer: aiospin.QueueWriter[Request], reader: aiospin.QueueReader[Token]) -> None:
        self._writer = writer
        self._reader = reader
        self._answers: dict[int, asyncio.Queue[str]] = {}

    async def ask(self, prompt: str) -> AsyncIterator[str]:
        """The words of the answer, as they come."""
        number = len(self._answers)
        answer = self._answers[number] = asyncio.Queue()
        await self._writer.aput((number, prompt))
        while word := await answer.get():
            yield word

    async def sort_answers(self) -> None:
        """Hand every word to the request it belongs to, until the worker closes its end."""
        async for number, word in self._reader:
            self._answers[number].put_nowait(word)


async def serve(writer: aiospin.QueueWriter[Request], reader: aiospin.QueueReader[Token]) -> None:
    front = Front(writer, reader)

    async def one(prompt: str) -> str:
        return " ".join([word async for word in front.ask(prompt)])

    async with reader:
        sorting = asyncio.create_task(front.sort_answers())
        async with writer:
            for number, answer in enumerate(await asyncio.gather(*map(one, PROMPTS))):
                print(f"request {number}: {answer}")
        await sorting  # the writer is closed: the worker ends its stream, and so does the sorting


def main() -> None:
    with aiospin.Queue[Request](codec="msgpack") as requests, aiospin.Queue[Token](codec="msgpack") as tokens:
        worker = get_context("spawn").Process(target=generate, args=(requests.reader(), tokens.writer()))
        worker.start()
        uvloop.run(serve(requests.writer(), tokens.reader()))
        worker.join()


if __name__ == "__main__":
    main()
