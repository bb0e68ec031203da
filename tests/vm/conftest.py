"""Fixtures of labs in virtual machines."""

from tests.support.ansible_lab import collection
