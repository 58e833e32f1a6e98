"""The operations whose instructions `.ci/counts` counts do what they say, and each has a count on record."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import operations
import pytest

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("leaves_nothing")]

RECORD = Path(__file__).with_name("record.json")


@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_an_operation_ends(name: str) -> None:
    with ThreadPoolExecutor(1) as pool:  # whose thread gives no turns from then on
        pool.submit(operations.main, name, 2 * operations.BATCH).result()


def test_every_operation_is_on_record() -> None:
    for counts in json.loads(RECORD.read_text()).values():
        assert counts.keys() == operations.OPERATIONS.keys()
        assert min(counts.values()) > 0
