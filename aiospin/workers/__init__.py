"""Worker processes that host an object, called from asyncio.

WorkerGroup     starts N processes, calls one or all, restarts those that die
Caller          the same calls with other options
Restart         how successors are started
current_worker  tells a worker its Place: rank, and size of the group
run             hosts an object in a process that was started otherwise
statistics      GroupStatistics, WorkerStatistics
errors          RemoteError, RemoteTraceback, StartFailed, WorkerDied
"""

from aiospin.workers._child import run
from aiospin.workers._failure import RemoteError, RemoteTraceback, StartFailed, WorkerDied
from aiospin.workers._group import Caller, WorkerGroup
from aiospin.workers._place import Place, current_worker
from aiospin.workers._restart import Restart
from aiospin.workers._survey import GroupStatistics, WorkerStatistics

__all__ = [
    "Caller",
    "GroupStatistics",
    "Place",
    "RemoteError",
    "RemoteTraceback",
    "Restart",
    "StartFailed",
    "WorkerDied",
    "WorkerGroup",
    "WorkerStatistics",
    "current_worker",
    "run",
]
