"""`aiospin doctor`: what this machine offers for waiting, what aiospin made of it, and what will hurt.

Begin with `fact` (what a finding is) and `machine` (where findings come from); `survey` lists the subjects, each a file
of its own; `report` and `document` show the result. What `--measure-power` does begins with `contest`.
"""
