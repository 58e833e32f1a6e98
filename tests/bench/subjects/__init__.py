"""One file per transport. `load_subjects()` is the only list of them."""

from __future__ import annotations

from ..contract import Subject


def load_subjects() -> dict[str, Subject]:
    """Every subject by name, in the order in which rounds play them."""
    from . import aiospin_async, aiospin_sync, asyncio_stream, floor, pipe, pyzmq_asyncio

    subjects = (
        floor.SUBJECT,
        aiospin_sync.SUBJECT,
        *aiospin_async.SUBJECTS,
        pipe.SUBJECT,
        *asyncio_stream.SUBJECTS,
        pyzmq_asyncio.SUBJECT,
    )
    return {subject.name: subject for subject in subjects}
