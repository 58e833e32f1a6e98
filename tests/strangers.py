"""What tests of attaching need: making this process a stranger to its own segment, and failing to attach.

Guarantee: `refused` also checks that a failed attach names the segment and leaves no descriptor open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from forked import open_descriptors

from aiospin._errors import AttachError
from aiospin._handle import SegmentRef
from aiospin._segment import Segment, registry

RING = 65536  # the smallest capacity


@contextmanager
def forgotten(segment: Segment) -> Iterator[Segment]:
    """Let the registry not know the segment, so that the next adopt attaches as a stranger would."""
    del registry.segments[segment._file]
    try:
        yield segment
    finally:
        registry.segments[segment._file] = segment


def refused(ref: SegmentRef, reason: str, error: type[AttachError] = AttachError) -> AttachError:
    """Attaching fails for that reason, names the segment and leaves no descriptor open."""
    before = open_descriptors()
    with pytest.raises(error, match=reason) as caught:
        Segment.adopt(ref)
    assert open_descriptors() == before
    assert ref.identity.hex()[:12] in str(caught.value)
    return caught.value
