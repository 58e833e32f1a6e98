"""The pure-Python backend: the same names, bytes and waits as the native one, without an extension.

It parks at once and never watches a word, so it has no Completion. `mapping` and `pages` map the segment, `ring` says
what a slot looks like, `reader_core` and `writer_core` are the protocol without waiting, `batch` and `record` what they
move, `crc` and `bell` their tools; `read_slot` and `write_slot` are what users hold; `operation`, `waiting`, `timing`
and `turn` are how a call waits, `word` is for aiospin.lowlevel; `endpoint`, `reader` and `writer` are the calls;
`forks` is what a child may not do.
"""

from aiospin._fallback.horizon import Horizon
from aiospin._fallback.mapping import Mapping
from aiospin._fallback.operation import Acquire, Operation
from aiospin._fallback.read_slot import ReadSlot
from aiospin._fallback.reader import Reader
from aiospin._fallback.word import BytesWatch, WordWatch, store_word
from aiospin._fallback.write_slot import WriteSlot
from aiospin._fallback.writer import Writer

__all__ = [
    "NAME",
    "Acquire",
    "BytesWatch",
    "Horizon",
    "Mapping",
    "Operation",
    "ReadSlot",
    "Reader",
    "WordWatch",
    "WriteSlot",
    "Writer",
    "store_word",
]

NAME = "fallback"
