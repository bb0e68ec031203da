"""The corpus, made once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.traces import corpus


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Captures of the research stack, which need no root."""
    return list(corpus.of_the_research_stack(tmp_path_factory.mktemp("simulated")))
