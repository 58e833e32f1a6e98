"""`python -m servers.serve`: the example's model server on any pool, at a free port of 127.0.0.1 that it prints.

Only the pool differs from the example's own command. SIGTERM ends it in order.

Assumption: `tests` and `docs/examples` are on `sys.path`, as `server.py` sets it up.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn
from model_server.app import create_app
from model_server.serve import Server
from model_server.settings import Settings

from .pool_names import POOLS
from .pools import make_pool

DRAIN = 5.0
"""seconds for what is under way at the end"""
DEADLINE = 10.0
"""seconds after which a request is answered with 504"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", choices=POOLS, default="aiospin")
    parser.add_argument("--model", default="magika")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _raise_exit)  # uvicorn raises it again after the orderly end
    settings = Settings(model=args.model, workers=args.workers, drain=DRAIN, max_deadline=DEADLINE)
    app = create_app(settings, make_pool(args.pool, args.model, args.workers))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app, loop="uvloop", lifespan="on", log_level="error", timeout_graceful_shutdown=round(DRAIN)
        )
        Server(config, app, f"port {listener.getsockname()[1]}").run(sockets=[listener])
    return 0


def _raise_exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
