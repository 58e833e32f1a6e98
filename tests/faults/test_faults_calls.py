"""A writer whose readers are awake makes no system call: it is killed at the first one, and lives.

Guarantee: the same program with a reader that sleeps is killed, so the filter sees what it is there for.
"""

from __future__ import annotations

import signal

import pytest
from ends import RING
from programs import Program

import aiospin

pytestmark = pytest.mark.usefixtures("leaves_nothing")

PROGRAM = """
    sys.path.append(os.path.join(os.environ["TESTS"], "faults"))
    from filters import only
    writing, reading = map(aiospin.attach, arguments)
    messages = [b"x" * 64] * 16
    def exchange():
        for _ in range(2000):  # many turns of the ring, whose readers' positions are looked at in each
            writing.put(messages[0])
            reading.get()
        writing.put_many(messages)
        reading.get_many(16)
    exchange()
    if {asleep}:
        assert reading.arm()  # which announces that it sleeps: the seam
    only("exit_group")
    exchange()
    os._exit(0)
"""


@pytest.mark.parametrize(("asleep", "status"), [(False, 0), (True, -signal.SIGSYS)])
def test_a_writer_with_nobody_asleep_makes_no_system_call(asleep: bool, status: int) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        handles = [str(queue.writer().handle), str(queue.reader(0).handle)]
        with Program(PROGRAM.format(asleep=asleep), handles, warnings=None) as child:
            assert child.wait() == status, child.complaints()
