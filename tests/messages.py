"""The corpus of messages: invalid campaign files, each with everything that validation reports about it.

    python -m tests.messages             # fails if a message differs, and prints both
    python -m tests.messages --update    # writes the messages of this version into the corpus

`tests/messages.yaml` has for each case the text of the campaign, options of `--set` if there are any, and the messages.
A new case needs no messages before an update. The difference of the corpus is the review of a changed wording.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from experiments.language import source
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError

CORPUS = Path(__file__).with_suffix(".yaml")
#: Name of the file in the messages.
FILE = "c.yaml"


def _yaml() -> YAML:
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def cases() -> dict[str, dict[str, Any]]:
    """Fields by the case's name: `text`, `set` and `messages`."""
    corpus: dict[str, dict[str, Any]] = _yaml().load(CORPUS.read_text())
    return corpus


def reported(text: str, overrides: list[str]) -> list[str]:
    """The messages about a campaign; none if it is good."""
    try:
        expand(source.parse(FILE, text), overrides)
    except CampaignError as error:
        return str(error).split("\n")
    return []


def main() -> int:
    """Compares, or updates."""
    corpus, differences = cases(), 0
    for name, case in corpus.items():
        now, before = reported(str(case["text"]), list(case.get("set", []))), list(case.get("messages", []))
        if now != before:
            differences += 1
            print(name, *difflib.ndiff(before, now), sep="\n")
        case["text"], case["messages"] = LiteralScalarString(case["text"]), now
    if "--update" in sys.argv[1:]:
        with CORPUS.open("w") as file:
            _yaml().dump(corpus, file)
        return 0
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
