"""Servers under load: what a transport costs a model server, and what a model server does while it is being hurt.

transports/   one file per way to reach worker processes from an event loop, all doing the same work
pools/        the model server's pool, built on what it would otherwise be built on
calls         the transports compared without a model: `python -m tests.servers.calls`
load          the model server under load, a worker killed in the middle: `python -m tests.servers.load`
"""
