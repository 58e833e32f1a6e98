"""What comes in with a request: its body, within bounds, and its parameters.

Guarantee: anything wrong raises HTTPException with the status that says so and a text that names the value. No more
than the limit and one network read of a body is ever kept.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from model_server.settings import Settings

_LONGEST_NAME = 255


def deadline_of(request: Request, settings: Settings) -> float:
    """When the client wants its answer, as a `time.monotonic()`: `?deadline_ms=`, or the header X-Deadline-Ms."""
    asked = request.query_params.get("deadline_ms") or request.headers.get("x-deadline-ms")
    if asked is None:
        return time.monotonic() + settings.max_deadline
    try:
        seconds = float(asked) / 1000
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= settings.max_deadline:
        most = f"{settings.max_deadline * 1000:.0f}"
        raise HTTPException(400, f"deadline_ms must be a number above 0 and at most {most}, got {asked[:40]!r}")
    return time.monotonic() + seconds


def name_of(request: Request) -> str:
    """What the client calls the file."""
    name = request.query_params.get("name", "file")
    if len(name) > _LONGEST_NAME:
        raise HTTPException(
            400, f"name must have at most {_LONGEST_NAME} characters, got {len(name)}: {name[:40]!r}..."
        )
    return name


async def body_of(request: Request, settings: Settings, deadline: float) -> bytes:
    """The raw body of one file."""
    chunks: list[bytes] = []

    async def read() -> None:
        async for chunk in _limited(request, settings.max_upload).stream():
            chunks.append(chunk)

    await _within(read(), deadline)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def files_of(request: Request, settings: Settings, deadline: float) -> Sequence[tuple[str, bytes]]:
    """The files of a multipart form, in its order: name and content of each."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        raise HTTPException(400, f"content-type must be multipart/form-data, got {kind[:80]!r}")
    files: list[tuple[str, bytes]] = []

    async def read() -> None:
        limited = _limited(request, settings.max_upload)
        async with limited.form(max_files=settings.max_files, max_fields=16) as form:
            for _, part in form.multi_items():
                if isinstance(part, UploadFile):
                    files.append(((part.filename or "file")[:_LONGEST_NAME], await part.read()))

    await _within(read(), deadline)
    if not files:
        raise HTTPException(400, "the form has no file")
    return files


async def _within(reading: object, deadline: float) -> None:
    try:
        await asyncio.wait_for(reading, max(0.0, deadline - time.monotonic()))  # type: ignore[arg-type]
    except asyncio.TimeoutError:
        raise HTTPException(504, "the deadline passed before the upload was complete") from None


def _limited(request: Request, limit: int) -> Request:
    """The same request, whose body ends with 413 where it becomes too long, or at once where that was announced."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise HTTPException(413, f"a request may have {limit} bytes, this one has {announced}")
    received = 0

    async def receive() -> Message:
        nonlocal received
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise HTTPException(413, f"a request may have {limit} bytes, this one has more")
        return message

    return Request(request.scope, receive)
