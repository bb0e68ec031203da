"""What the campaign tests share: they read the registry, so they need the node binary."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import node_binary
from testbed.errors import Unavailable


@pytest.fixture(autouse=True, scope="session")
def node_binary_is_built() -> None:
    try:
        node_binary.path()
    except Unavailable as error:
        pytest.fail(str(error))


@pytest.fixture
def campaign_file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"
