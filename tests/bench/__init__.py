"""Benchmarks: they measure and report, and never fail a test run.

`python -m tests.bench` runs every scenario. Each file of `subjects/` knows one transport and nothing else; `contract`
says what a subject offers, `scenarios` what is asked of it, `run` interleaves the rounds.
"""
