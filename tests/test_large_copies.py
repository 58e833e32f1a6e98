"""Large payloads in a ring that no cache holds: their copy takes another way, and must come out the same."""

from __future__ import annotations

import random

import pytest
from ends import pair

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.mark.parametrize("seed", range(3))
def test_large_messages_arrive_whole_whatever_they_are_gathered_from(seed: int) -> None:
    dice = random.Random(seed)
    block = dice.randbytes(3 << 20)
    with pair(capacity="64 MiB") as (writer, reader):
        for _ in range(40):
            cuts = [dice.randrange(len(block)) for _ in range(dice.randint(1, 6))]
            parts = [memoryview(block)[cut : cut + dice.choice((0, 1, 63, 64, 5000, 1 << 18, 2 << 20))] for cut in cuts]
            writer.put(*parts)
            assert reader.get() == b"".join(parts)
