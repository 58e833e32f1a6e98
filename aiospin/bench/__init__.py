"""`aiospin bench`: aiospin and what one would use instead, on the same work, in one run on this machine.

A *subject* (contract.py, subjects/) is one transport as its users speak it. A *scenario* (scenario.py, scenarios/) is
one question, and the arithmetic of its answer. `rounds` asks every subject in turn, `table` and `plot` show what came
of it.
"""
