"""Fixtures of labs in namespaces."""

from tests.support.ansible_lab import collection, lab_files
