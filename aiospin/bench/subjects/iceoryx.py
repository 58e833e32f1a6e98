"""iceoryx2: publish and subscribe over shared memory, with an event for a reader to sleep on.

Messages are loaned, filled and sent without a copy; a reader takes samples until there are none, then waits for the
event. Nothing overflows: a publisher retries until every subscriber has taken what fills its buffer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from aiospin.bench.contract import End, Line, Plan, Subject, imported

MESSAGES = 64


@dataclass(frozen=True)
class Iceoryx(Subject):
    @contextlib.contextmanager
    def line(self, plan: Plan) -> Generator[Line, None, None]:
        there, back = f"aiospin-bench-{uuid.uuid4()}", f"aiospin-bench-{uuid.uuid4()}" if plan.answers else None
        yield Line((there, back), [(back, there)] * plan.readers)

    @contextlib.contextmanager
    def open(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        iox2 = imported("iceoryx2")
        iox2.set_log_level(iox2.LogLevel.Fatal)
        outgoing, incoming = ticket
        with contextlib.ExitStack() as stack:
            node = _node(iox2, plan)
            calls: dict[str, Callable[..., Any]] = {}
            if outgoing is not None:
                calls["send"] = _sending(iox2, stack, node, outgoing, plan)
            if incoming is not None:
                calls["receive"], calls["consume"] = _receiving(iox2, stack, node, incoming, plan)
            yield End(**calls)


def _node(iox2: Any, plan: Plan) -> Any:
    """One whose files are where those of the run are, by place and by name, and go with them."""
    config = iox2.config.default()
    config.global_cfg.root_path = iox2.Path.new(f"{plan.folder}/iceoryx2/")
    config.global_cfg.prefix = iox2.FileName.new(f"{os.path.basename(plan.folder)}.")
    builder = iox2.NodeBuilder.new().config(config).signal_handling_mode(iox2.SignalHandlingMode.Disabled)
    return builder.create(iox2.ServiceType.Ipc)


def _services(iox2: Any, node: Any, name: str, plan: Plan) -> tuple[Any, Any]:
    samples = (
        node.service_builder(iox2.ServiceName.new(name))
        .publish_subscribe(iox2.Slice[ctypes.c_uint8])
        .enable_safe_overflow(False)
        .subscriber_max_buffer_size(max(2, min(MESSAGES, plan.room // plan.nbytes)))
        .open_or_create()
    )
    return samples, node.service_builder(iox2.ServiceName.new(name)).event().open_or_create()


def _sending(iox2: Any, stack: contextlib.ExitStack, node: Any, name: str, plan: Plan) -> Callable[[bytes], None]:
    samples, events = _services(iox2, node, name, plan)
    publisher = samples.publisher_builder().initial_max_slice_len(plan.nbytes).create()
    stack.callback(publisher.delete)
    notifier = events.notifier_builder().create()
    stack.callback(notifier.delete)
    loan, notify, memmove, nbytes = publisher.loan_slice_uninit, notifier.notify, ctypes.memmove, plan.nbytes

    def send(payload: bytes) -> None:
        sample = loan(nbytes)
        memmove(sample.payload_ptr, payload, nbytes)
        sample.assume_init().send()
        notify()

    return send


def _receiving(
    iox2: Any, stack: contextlib.ExitStack, node: Any, name: str, plan: Plan
) -> tuple[Callable[[], bytes], Callable[[], None]]:
    samples, events = _services(iox2, node, name, plan)
    subscriber = samples.subscriber_builder().create()
    stack.callback(subscriber.delete)
    listener = events.listener_builder().create()
    stack.callback(listener.delete)
    take, wait, string_at, nbytes = subscriber.receive, listener.blocking_wait, ctypes.string_at, plan.nbytes

    def receive() -> bytes:
        while (sample := take()) is None:
            wait()
        payload = string_at(sample.payload_ptr, nbytes)
        sample.delete()
        return payload

    def consume() -> None:
        while (sample := take()) is None:
            wait()
        sample.delete()

    return receive, consume


SUBJECTS = (Iceoryx("iceoryx2", "sync", needs="iceoryx2", package="iceoryx2"),)
