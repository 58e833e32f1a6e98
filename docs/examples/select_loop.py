"""A queue and a socket in one plain loop: no asyncio, no threads.

The rule is one line: `arm()` before every sleep, and sleep only if it says so. The worker sends over both at
once. It prints:

    from the queue: 100 messages
    from the socket: 100 lines
"""

from __future__ import annotations

import selectors
import socket
from multiprocessing import get_context

import aiospin

NUMBER = 100


def chatter(writer: aiospin.QueueWriter[bytes], line: socket.socket) -> None:
    """Say everything twice."""
    with writer, line:
        for number in range(NUMBER):
            writer.put(b"%d" % number)
            line.sendall(b"%d\n" % number)


class Listener:
    """Counts what comes from either side, until both have ended."""

    def __init__(self, reader: aiospin.QueueReader[bytes], line: socket.socket) -> None:
        self.messages = 0
        self.lines = 0
        self._reader = reader
        self._line = line
        self._open = {"queue", "socket"}

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ, "queue")
            selector.register(self._line, selectors.EVENT_READ, "socket")
            while self._open:
                sleep = "queue" not in self._open or self._reader.arm()
                for key, _ in selector.select(None if sleep else 0):
                    if key.data == "socket" and not self._take_lines():
                        selector.unregister(self._line)
                if "queue" in self._open and not self._take_messages():
                    selector.unregister(self._reader)

    def _take_messages(self) -> bool:
        try:
            while (slot := self._reader.try_acquire_read()) is not None:
                with slot:
                    self.messages += 1
        except aiospin.QueueClosed:
            self._open.discard("queue")
            return False
        return True

    def _take_lines(self) -> bool:
        received = self._line.recv(65536)
        self.lines += received.count(b"\n")
        if not received:
            self._open.discard("socket")
        return bool(received)


def main() -> None:
    ours, theirs = socket.socketpair()
    with aiospin.Queue[bytes]() as queue, ours:
        worker = get_context("spawn").Process(target=chatter, args=(queue.writer(), theirs))
        worker.start()
        theirs.close()
        with queue.reader() as reader:
            listener = Listener(reader, ours)
            listener.run()
        worker.join()
    print(f"from the queue: {listener.messages} messages")
    print(f"from the socket: {listener.lines} lines")


if __name__ == "__main__":
    main()
