"""What the types must refuse: each line that ends in a `wrong` comment is an error to mypy. Checked and never run."""

from __future__ import annotations

import aiospin


def mistakes(
    queue: aiospin.Queue[bytes], reader: aiospin.QueueReader[bytes], writer: aiospin.QueueWriter[bytes]
) -> None:
    aiospin.Queue(readers="2")  # wrong
    aiospin.Queue(capacity=1.5)  # wrong
    aiospin.Queue(size=3)  # wrong
    queue.writer().get()  # wrong
    reader.put(b"x")  # wrong
    reader.get(timeout="1")  # wrong
    reader.get_many()  # wrong
    writer.put_many(5)  # wrong
    writer.acquire_write("10")  # wrong
    aiospin.attach(5)  # wrong
    reader.rank = 3  # wrong
    queue.statistics().depth = 3  # wrong
    print(reader.acquire_read().size)  # wrong
    writer.drop_reader("0")  # wrong


async def mistakes_in_a_loop(reader: aiospin.QueueReader[bytes]) -> None:
    for _ in reader.slots():  # wrong
        pass
    (await reader.acquire_read()).publish()  # wrong
