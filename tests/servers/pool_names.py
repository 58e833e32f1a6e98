"""The names of the pools, for those who cannot import them: that needs the example on `sys.path`."""

from __future__ import annotations

POOLS = ("aiospin", "executor", "mp_queue")
