"""What the server from which cases are forked imports beforehand: all of the benchmark, and no peer's package.

Peers' packages may start threads when they are imported, which a fork would not take along.
"""

from aiospin.bench import cases as cases
from aiospin.bench.subjects import load_subjects

load_subjects()
