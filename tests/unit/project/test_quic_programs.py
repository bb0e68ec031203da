"""`./backchannel bench quic-programs`: what it compares, and that each program has a campaign that names it."""

from __future__ import annotations

import re
import struct

import pytest

from benchmarks import quic_programs
from experiments.language.campaign import load

HEAD = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000065000000")


def capture(*packets: tuple[int, bytes]) -> bytes:
    """Packets at times in s."""
    return HEAD + b"".join(struct.pack("<4I", at, 0, len(data), len(data)) + data for at, data in packets)


def test_the_first_packet_that_differs_is_named() -> None:
    same = capture((0, b"abc"), (1, b"defgh"))
    assert quic_programs.difference({"a": same}, {"a": same}) == ""
    for other, words in (
        (capture((0, b"abc"), (1, b"dEfGh")), "packet 2 at a (bytes 1, 3)"),
        (capture((0, b"abc"), (2, b"defgh")), "packet 2 at a (its time)"),
        (capture((0, b"abc")), "the number of packets at a"),
    ):
        assert quic_programs.difference({"a": same}, {"a": other}) == words


@pytest.mark.parametrize("program", quic_programs.PROGRAMS, ids=lambda program: program.name)
def test_a_program_has_a_campaign_and_both_roles_in_the_script(program: quic_programs.ProgramPair) -> None:
    (run,) = load(quic_programs.CAMPAIGNS / program.file, ["backend=virtual-kernel"]).runs
    (flow,) = run.scenario.workload
    assert flow.command is not None
    assert program.name in flow.command.client or program.name == "ngtcp2", "the script's default"
    script = (quic_programs.CAMPAIGNS / "quic.sh").read_text()
    assert len(re.findall(rf"^    (?:\S+ \| )*{program.name}(?: \| \S+)*\)", script, re.MULTILINE)) == 2
