"""The notebooks of the docs: every cell runs, one after the other, and shows what the text promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.node_binary import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
#: Appended to the cells: what the last comparison found, for the test.
TOLD = """
import json
print("\\n" + json.dumps([compared["metric"].to_list(), compared["n"].to_list(), len(axes.lines),
                       [line.get_xdata().size for line in axes.lines]]))
"""


def test_there_is_a_notebook() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["results"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path, tmp_path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in cells), "outputs are not kept: they would grow old"
    # The notebook starts in the checkout, the test does not write there.
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    program = tmp_path / "notebook.py"
    program.write_text("\n\n".join([*code, TOLD]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    metrics, pairs, lines, points = json.loads(done.stdout.strip().splitlines()[-1])
    assert {"time_to_a_megabyte", "throughput"} <= set(metrics)
    assert set(pairs) == {3}
    assert lines == 2
    assert min(points) > 100
