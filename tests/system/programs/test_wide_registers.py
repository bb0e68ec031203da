"""What is loaded into User-Mode Linux lets it set fewer registers than the processor has."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from testbed.virtual_kernel import kernels

TRACER = Path(__file__).with_name("traced_registers.c")


def traced(program: Path, **environment: str) -> list[int]:
    done = subprocess.run([program], env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_registers_that_are_not_set_are_no_error(tmp_path: Path) -> None:
    program, library = tmp_path / "traced", tmp_path / "preloaded.so"
    subprocess.run(["gcc", "-O1", "-o", program, TRACER], check=True)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, *kernels.PRELOADED], check=True)
    # Linux without the library, else there would be nothing to mend.
    assert traced(program) == [errno.EFAULT, 0, 1]
    assert traced(program, LD_PRELOAD=str(library)) == [0, 1, 1]
