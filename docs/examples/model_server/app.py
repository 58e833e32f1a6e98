"""The HTTP side: routes, and what each answers.

    GET  /            the page              GET /static/...   what it is made of
    POST /predict     one file, raw         POST /jobs        many, multipart; answers stream back as each is done
    GET  /healthz     for a load balancer   GET /metrics      for Prometheus          GET /live   for the page's chart

Guarantee: a client that goes away takes its work with it. Every failure is JSON with an `error` that names what was
wrong; a refusal (503) says in Retry-After when to come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from model_server import intake, live, metrics
from model_server.pool import Pool
from model_server.service import Answer, Failure, Service
from model_server.settings import Settings

_STATIC = Path(__file__).parent / "static"
_PAGE_HEADERS = {"Content-Security-Policy": "default-src 'self'", "Cache-Control": "no-cache"}
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_GONE = 499  # the client went away; nobody sees it but the counter


def create_app(settings: Settings, pool: Pool) -> Starlette:
    """The application. Its `state.service` can be told to drain."""
    service = Service(settings, pool)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    def route(path: str, answer: Callable[[Service, Request], Awaitable[Response]], method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            status = _GONE
            try:
                response = await answer(service, request)
                status = response.status_code
                return response
            except HTTPException as error:
                status = error.status_code
                raise
            except ClientDisconnect:
                return Response(status_code=_GONE)
            finally:
                service.count_request(path, status)

        return Route(path, endpoint, methods=[method])

    app = Starlette(
        routes=[
            route("/", _page),
            route("/predict", _predict, "POST"),
            route("/jobs", _jobs, "POST"),
            route("/healthz", _healthz),
            route("/metrics", _metrics),
            route("/live", _live),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refuse},
    )
    app.state.service = service
    return app


async def _page(service: Service, request: Request) -> Response:
    return FileResponse(_STATIC / "index.html", headers=_PAGE_HEADERS)


async def _predict(service: Service, request: Request) -> Response:
    deadline, name = intake.deadline_of(request, service.settings), intake.name_of(request)
    content = await intake.body_of(request, service.settings, deadline)
    answer = await _unless_gone(request, service.classify(content, deadline))
    if isinstance(answer, Failure):
        return _failed(answer, {"name": name})
    return JSONResponse({"name": name, **answer.fields()})


async def _jobs(service: Service, request: Request) -> Response:
    deadline = intake.deadline_of(request, service.settings)
    refusal = service.refusal()
    if refusal is not None:
        return _failed(refusal, {})  # before it uploads for nothing
    files = await intake.files_of(request, service.settings, deadline)
    events = _job(service, files, deadline)
    return StreamingResponse(events, media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _job(service: Service, files: Sequence[tuple[str, bytes]], deadline: float) -> AsyncIterator[str]:
    began = time.monotonic()
    tasks = {
        asyncio.ensure_future(service.classify(content, deadline)): {"index": index, "name": name}
        for index, (name, content) in enumerate(files)
    }
    left = set(tasks)
    try:
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                answer = task.result()
                event = "file" if isinstance(answer, Answer) else "failed"
                yield _event({**tasks[task], **answer.fields()}, event)
        yield _event({"files": len(files), "seconds": round(time.monotonic() - began, 6)}, "done")
    finally:
        for task in left:
            task.cancel()


async def _healthz(service: Service, request: Request) -> Response:
    status, body = service.health()
    return JSONResponse(body, status, headers={"Cache-Control": "no-store"})


async def _metrics(service: Service, request: Request) -> Response:
    return PlainTextResponse(service.metrics(), headers={"Content-Type": metrics.CONTENT_TYPE})


async def _live(service: Service, request: Request) -> Response:
    async def events() -> AsyncIterator[str]:
        async with contextlib.aclosing(live.samples(service)) as samples:
            async for sample in samples:
                yield _event(sample)

    return StreamingResponse(events(), media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _unless_gone(request: Request, work: Awaitable[Answer | Failure]) -> Answer | Failure:
    """The work's outcome. ClientDisconnect, with the work cancelled, when nobody is there any more to get it."""
    working, going = asyncio.ensure_future(work), asyncio.ensure_future(_is_gone(request))
    try:
        await asyncio.wait([working, going], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        going.cancel()


async def _is_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _failed(failure: Failure, more: Mapping[str, Any]) -> Response:
    retry = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
    return JSONResponse({**more, **failure.fields()}, failure.status, headers=retry)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "status": error.status_code}, error.status_code, headers=error.headers)


def _event(fields: Mapping[str, Any], event: str | None = None) -> str:
    """One server-sent event. JSON has no line breaks of its own."""
    head = "" if event is None else f"event: {event}\n"
    return f"{head}data: {json.dumps(fields)}\n\n"
