"""A model server: Starlette in front, Magika in worker processes behind, aiospin between them.

Start it with `python docs/examples/model_server`; README.md beside this file says which file does what.
"""
