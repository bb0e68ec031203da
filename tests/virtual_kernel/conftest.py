"""The kernel that runs in virtual time: tests that hold numbers use it, because no busy machine can be late there."""

from __future__ import annotations

import pytest

from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build


@pytest.fixture(scope="session")
def kernel() -> kernels.Kernel:
    """Built when it is first needed."""
    return build(kernels.DEFAULT, print)
