"""Worker processes that host an object, called from asyncio.

WorkerGroup   starts N processes, calls one or all, restarts those that die
Caller        the same calls with other options
Restart       how successors are started
run           hosts an object in a process that was started otherwise
errors        RemoteError, RemoteTraceback, StartFailed, WorkerDied
"""

from aiospin.workers._child import run
from aiospin.workers._crew import Restart
from aiospin.workers._failure import RemoteError, RemoteTraceback, StartFailed, WorkerDied
from aiospin.workers._group import Caller, WorkerGroup

__all__ = [
    "Caller",
    "RemoteError",
    "RemoteTraceback",
    "Restart",
    "StartFailed",
    "WorkerDied",
    "WorkerGroup",
    "run",
]
