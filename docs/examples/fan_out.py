"""Two workers get every text, each counts its share of the letters, and the front end adds up the answers.

The jobs go through one queue with two readers. Each worker answers on a queue of its own, and a WaitSet tells which has
something. It prints:

    abracadabra: a=5 b=2 c=1 d=1 r=2
    mississippi: i=4 m=1 p=2 s=4
"""

from __future__ import annotations

import asyncio
from collections import Counter
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import aiospin

WORKERS = 2
TEXTS = ("abracadabra", "mississippi")

Answer = tuple[int, dict[str, int]]


def count(rank: int, texts: aiospin.QueueReader[str], answers: aiospin.QueueWriter[Answer]) -> None:
    """Count the letters that are this worker's, text by text, until the front end closes the queue."""
    with texts, answers:
        for number, text in enumerate(texts):
            mine = [letter for letter in text if ord(letter) % WORKERS == rank]
            answers.put((number, Counter(mine)))


async def gather_counts(readers: list[aiospin.QueueReader[Answer]]) -> list[Counter[str]]:
    """Add up what the workers answer, until every text has an answer from each."""
    totals: list[Counter[str]] = [Counter() for _ in TEXTS]
    missing = len(TEXTS) * len(readers)
    with aiospin.WaitSet(readers) as waits:
        while missing:
            for reader in await waits.wait(timeout=60):
                assert isinstance(reader, aiospin.QueueReader)
                number, counts = reader.get_nowait()
                totals[number].update(counts)
                missing -= 1
    return totals


async def main() -> None:
    context = get_context("spawn")
    texts = aiospin.Queue[str](readers=WORKERS, codec="msgpack")
    answers = [aiospin.Queue[Answer](codec="msgpack") for _ in range(WORKERS)]
    workers: list[BaseProcess] = [
        context.Process(target=count, args=(rank, texts.reader(rank), answers[rank].writer()))
        for rank in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    readers = [queue.reader() for queue in answers]
    async with texts.writer() as writer:
        await writer.aput_many(TEXTS)
        for text, total in zip(TEXTS, await gather_counts(readers), strict=True):
            print(f"{text}:", *(f"{letter}={times}" for letter, times in sorted(total.items())))
    for worker in workers:
        await asyncio.to_thread(worker.join)
    for reader in readers:
        reader.close()
    texts.close()
    for queue in answers:
        queue.close()


if __name__ == "__main__":
    asyncio.run(main())
