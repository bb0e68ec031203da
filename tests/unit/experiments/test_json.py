"""`--json` of every command."""

from __future__ import annotations

import pytest

from tests.reference import WITHOUT_JSON, commands, document_of, document_text


@pytest.mark.parametrize("words", commands())
def test_every_command_answers_scripts_or_states_why_not(words: str) -> None:
    command = commands()[words]
    document = document_of(command)
    if words in WITHOUT_JSON:
        assert document is None, f"{words} has an answer: take it out of WITHOUT_JSON"
        return
    assert document is not None, f"{words} prints without --json: return an Answer (experiments/commands/answer.py)"
    assert any("--json" in parameter.opts for parameter in command.params)
    assert document_text(document)


def test_exceptions_are_commands() -> None:
    assert set(WITHOUT_JSON) <= set(commands())
