"""A camera and a viewer: pictures are drawn straight into shared memory, and looked at where they lie.

The camera draws into an array over the claimed slot. The viewer holds arrays over three pictures at a time, to compare
them; each goes back to the ring when its last array is gone. It prints:

    picture 2: 1.0 brighter than picture 0
    picture 5: 1.0 brighter than picture 3
    all seen, none held
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

import aiospin

SHAPE = (240, 320)
BYTES = 4 * SHAPE[0] * SHAPE[1]
PICTURES = 6

Picture = npt.NDArray[np.float32]


def film(writer: aiospin.QueueWriter[bytes]) -> None:
    """Draw PICTURES pictures, each half a step brighter than the last."""
    with writer:
        for number in range(PICTURES):
            with writer.acquire_write(BYTES) as slot:
                canvas = np.frombuffer(slot.data, dtype=np.float32).reshape(SHAPE)
                canvas[:] = number / 2
                del canvas  # published at the end of the `with`: no more drawing


def pictures(reader: aiospin.QueueReader[bytes]) -> Iterator[tuple[int, Picture]]:
    """Number and pixels of each picture. The pixels are the camera's own bytes, while somebody keeps the array."""
    while True:
        try:
            with reader.acquire_read() as slot:
                yield slot.sequence, np.frombuffer(slot.data, dtype=np.float32).reshape(SHAPE)
        except aiospin.QueueClosed:
            return


def view(reader: aiospin.QueueReader[bytes]) -> None:
    """Compare the first and the last of every three."""
    held: list[Picture] = []
    for number, picture in pictures(reader):
        held.append(picture)
        del picture
        if len(held) == 3:
            print(f"picture {number}: {float(np.mean(held[-1] - held[0]))} brighter than picture {number - 2}")
            held.clear()
    print("all seen, none held" if reader.statistics().leases == 0 else "somebody keeps a picture")


def main() -> None:
    with aiospin.Queue[bytes](capacity="2 MiB") as queue:
        camera = get_context("spawn").Process(target=film, args=(queue.writer(),))
        camera.start()
        with queue.reader() as reader:
            view(reader)
        camera.join()


if __name__ == "__main__":
    main()
