"""Fixtures of labs over SSH."""

from tests.support.labs import faketime, sshd
