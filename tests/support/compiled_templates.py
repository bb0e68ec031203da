"""The site's templates, compiled once a process for all sites that its tests create.

Each site has an environment of its own, and compiling takes most of the time of its first pages.
"""

from __future__ import annotations

from flask import Flask
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket


class InMemory(BytecodeCache):
    """Bytecode by the template's name and file; Jinja compares it with the template's text."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


def share() -> None:
    """Lets all sites of this process share what is compiled."""
    Flask.jinja_options = {"bytecode_cache": InMemory()}
