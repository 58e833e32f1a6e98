"""Starts the processes of a storm by forking, which is far cheaper than starting Python for each, and buries them.

    {"start": {...}}  a Post: fork a child that plays it        answer {"pid": 123}
    {"bury": 123}     wait for a child that has ended           answer {"status": -9}

Run as a program, on the backend that its environment chooses. Requests and answers are lines of JSON.

Guarantee: a child's process leaves by `os._exit`: 0 when it has played its post to the end, quietly, and left nothing
behind; anything else with a story in its log. Assumption: this process has one thread, so that it may fork.
"""

from __future__ import annotations

import concurrent.futures
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import traceback
import warnings

import storm_bells
from storm_book import PID, Book
from storm_message import Violation
from storm_post import Post
from storm_reader import ReaderRole
from storm_role import Role
from storm_writer import WriterRole

import aiospin


def play(post: Post) -> None:
    """All roles of a post, the first in this thread and each other in one of its own."""
    book = Book(post.book)
    for role in post.roles:
        book.page(role)[PID] = os.getpid()
    first = book.page(post.roles[0])
    storm_bells.install(lambda: first.count("bell checks"), post.period)
    warm_up()
    before = footprint()
    roles: list[Role] = [(ReaderRole if role else WriterRole)(book, post, role) for role in post.roles]
    with concurrent.futures.ThreadPoolExecutor(max(1, len(roles) - 1)) as pool:
        playing = [pool.submit(_play_or_die, role) for role in roles[1:]]
        roles[0].play()
        for played in playing:
            played.result()
    interrupts = [role.interrupts for role in roles]
    roles.clear()
    gc.collect()
    left = footprint() - before
    if any(interrupts):  # between the call that opens a pidfd and the line that keeps it
        left = {descriptor for descriptor in left if not descriptor.endswith("[pidfd]")}
    if left or threading.active_count() != 1:
        raise Violation(f"left behind: {sorted(left)}, {threading.enumerate()}")


def _play_or_die(role: Role) -> None:
    try:
        role.play()
    except BaseException:
        traceback.print_exc()
        os._exit(3)
        raise


def warm_up() -> None:
    """Make what a process makes once and keeps."""
    import uvloop

    uvloop.new_event_loop().close()  # libuv's signal pipe
    queue: aiospin.Queue[bytes] = aiospin.Queue(capacity="64 KiB")
    with queue, queue.reader() as reader:
        try:
            reader.get(timeout=0.001)
        except TimeoutError:
            return


def footprint() -> set[str]:
    """The descriptors of this process."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{entry} -> {os.readlink(f'/proc/self/fd/{entry}')}")
        except FileNotFoundError:  # the listing's own
            continue
    return found


def _child(post: Post) -> None:
    """Never returns."""
    status = 3
    try:
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(post.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for fd, onto in ((null, 0), (log, 1), (log, 2)):
            os.dup2(fd, onto)
        os.close(null)
        os.close(log)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
        play(post)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    # Warnings are errors (-W error), but for three that are earned here on purpose.
    warnings.filterwarnings("ignore", "a write (slot|claim) .*(published nor|published or) aborted", ResourceWarning)
    warnings.filterwarnings("ignore", ".*aput.* was never awaited", RuntimeWarning)
    warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)  # a signal just after an open()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            post = Post.from_json(json.dumps(request["start"]))
            pid = os.fork()
            if pid == 0:
                _child(post)
            answer = {"pid": pid}
        else:
            _, status = os.waitpid(request["bury"], 0)
            answer = {"status": os.waitstatus_to_exitcode(status)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
