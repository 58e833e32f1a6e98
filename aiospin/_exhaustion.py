"""What to say when a process has no descriptor left: how many it takes, how many there may be, and how to have more.

Guarantee: the error stays an OSError with the kernel's own number (EMFILE, ENFILE), and nothing else is touched. Limits
are never changed here: a library that raised the soft limit would break every `select` of its program above 1024.
Assumption: asked after the fact, so that a call that succeeds pays nothing.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Generator

from aiospin._errors import AttachError

if sys.platform != "win32":  # there this file only has to import
    import resource


@contextlib.contextmanager
def descriptors_for(what: str, needed: int) -> Generator[None]:
    """Explain it when descriptors run out within: `what` takes `needed` of them."""
    try:
        yield
    except (OSError, AttachError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise OSError(
            cause.errno, f"{cause.strerror}: {what} takes {needed} descriptors; {_advice(cause.errno)}"
        ) from error


def _advice(number: int) -> str:
    if number == errno.ENFILE:
        return "the whole system has as many open as fs.file-max allows"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return f"this process may have {soft} open, and only its administrator can raise that (ulimit -Hn)"
    most = "as it likes" if hard == resource.RLIM_INFINITY else f"to {hard}"
    how = "ulimit -n, or resource.setrlimit(resource.RLIMIT_NOFILE, ...)"
    return f"this process may have {soft} open, and may raise that {most} ({how})"
