"""Interfaces of other libraries' queues, on top of aiospin. Each is a package of its own, imported by name."""
