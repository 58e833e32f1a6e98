"""One file per transport. `load_subjects` is the only list of them."""

from __future__ import annotations

from aiospin.bench.contract import Subject


def load_subjects() -> dict[str, Subject]:
    """Every subject by name, in the order in which rounds play them and tables show them."""
    from aiospin.bench.subjects import (
        aiospin_queue,
        executor,
        fifo,
        flag_loop,
        iceoryx,
        mp_pipe,
        mp_queue,
        subetha_ring,
        unix_stream,
        zmq_sockets,
    )

    files = (
        aiospin_queue,
        mp_pipe,
        mp_queue,
        unix_stream,
        zmq_sockets,
        iceoryx,
        subetha_ring,
        fifo,
        executor,
        flag_loop,
    )
    return {subject.name: subject for file in files for subject in file.SUBJECTS}
