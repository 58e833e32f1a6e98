"""python docs/examples/model_server: start the server.

Guarantee: a wrong option ends it with exit code 2 and a line that names the value, before anything is started.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Run as a folder, this file is on its own: the package is looked up beside it, here and in the workers.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from model_server.settings import MEBIBYTE, Settings, default_workers  # noqa: E402

_DEFAULTS = Settings()


def parse(arguments: list[str]) -> tuple[argparse.Namespace, Settings]:
    """The options and the settings made of them. SystemExit(2) for wrong ones."""
    parser = argparse.ArgumentParser(
        prog="model_server",
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen at")
    add("--port", type=int, default=8080, help="port to listen at; 0 for any that is free")
    add("--model", default=_DEFAULTS.model, help="magika, noop, or noop:MILLISECONDS")
    add("--workers", type=int, default=None, help="worker processes of each server process (default: CPUs / servers)")
    add(
        "--server-processes",
        type=int,
        default=int(os.environ.get("WEB_CONCURRENCY") or 1),
        help="servers that share the port, each with workers of its own; WEB_CONCURRENCY sets it too",
    )
    add("--max-batch", type=int, default=_DEFAULTS.max_batch, help="files in one run of the model, at most")
    add("--max-wait-ms", type=float, default=_DEFAULTS.max_wait * 1000, help="how long a file waits for company")
    add("--max-pending", type=int, default=_DEFAULTS.max_pending, help="files that may wait; more get a 503")
    add("--max-upload-mib", type=int, default=_DEFAULTS.max_upload // MEBIBYTE, help="the longest request")
    add("--max-files", type=int, default=_DEFAULTS.max_files, help="files in one job")
    add("--max-deadline-s", type=float, default=_DEFAULTS.max_deadline, help="the longest deadline, and the default")
    add("--drain-s", type=float, default=_DEFAULTS.drain, help="time for what is under way at the end")
    add("--log-level", default="warning", choices=["debug", "info", "warning", "error"], help="of uvicorn and aiospin")
    given = parser.parse_args(arguments)
    if given.server_processes < 1:
        parser.error(f"--server-processes must be at least 1, got {given.server_processes}")
    if not 0 <= given.port <= 65535:
        parser.error(f"--port must be from 0 to 65535, got {given.port}")
    try:
        return given, Settings(
            model=given.model,
            workers=default_workers(given.server_processes) if given.workers is None else given.workers,
            max_batch=given.max_batch,
            max_wait=given.max_wait_ms / 1000,
            max_pending=given.max_pending,
            max_upload=given.max_upload_mib * MEBIBYTE,
            max_files=given.max_files,
            max_deadline=given.max_deadline_s,
            drain=given.drain_s,
        )
    except ValueError as error:
        parser.error(str(error))


def main(arguments: list[str]) -> int:
    """Serve until a signal. Returns an exit code."""
    given, settings = parse(arguments)
    try:
        from model_server.serve import Place, serve
    except ImportError as error:
        print(f"model_server needs the extra [example]: pip install 'aiospin[example]' ({error})", file=sys.stderr)
        return 2
    try:
        return serve(settings, Place(given.host, given.port, given.log_level), given.server_processes)
    except OSError as error:
        print(f"model_server: cannot listen at {given.host}:{given.port}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
