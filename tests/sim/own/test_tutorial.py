"""The first tutorial of docs/your-own.md, from idea to figure: its commands and its code, as the page has them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from testbed.node_binary import ROOT
from tests.conftest import backchannel

SECTION = re.search(
    r"^## A queue policy in twenty lines.*?\n(.*?)^## ",
    (ROOT / "docs/your-own.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


def replaced(text: str, pattern: str, with_: str) -> str:
    """A text with something else at the one place where a pattern matches."""
    result, count = re.subn(pattern, lambda _: with_, text, flags=re.DOTALL)
    assert count == 1, pattern
    return result


def edited(library: str, options: str, build: str) -> str:
    """The policy of `new` with the changes that the tutorial describes."""
    library = replaced(library, r"    struct Parameters \{.*?\n    \}\n", options)
    library = replaced(library, r"    let Parameters \{.*?Ok\(Box::new\(.*?\n", build)
    library = replaced(library, "    threshold_packets: usize,\n", "    target_bytes: f64,\n")
    condition = "self.queue.len_bytes() as f64 > self.target_bytes"
    library = replaced(library, r"self\.queue\.len_packets\(\) >= self\.threshold_packets", condition)
    # Its test.
    library = replaced(library, r"fn policy\(threshold: u64\)", "fn policy(target_s: f64)")
    library = replaced(library, "rate_bps: None, opposite", "rate_bps: Some(8_000_000), opposite")
    library = replaced(
        library, r'"threshold_packets"\.into\(\), json!\(threshold\)', '"target_s".into(), json!(target_s)'
    )
    return replaced(library, r"policy\(1\)", "policy(0.001)")


@pytest.mark.slow(reason="compiles the policy with its test and for a node")
def test_its_commands_and_code_give_what_it_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SECTION
    text = SECTION[1]
    options, build = re.findall(r"^```rust\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (sweep,) = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    new, *commands = re.findall(r"^    \./backchannel (.*)$", text, re.MULTILINE)
    (tested,) = re.findall(r"^    (\(cd .* && cargo test\))$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)

    def ran(command: str) -> str:
        done = backchannel(*shlex.split(command), timeout_s=1500, status=0)
        return done.stdout

    ran(new)
    library, campaign = Path("short-wait/src/lib.rs"), Path("short-wait/campaign.yaml")
    library.write_text(edited(library.read_text(), options, build))
    campaign.write_text(replaced(campaign.read_text(), r"sweep:.*?\n\n", f"{sweep}\n"))
    done = subprocess.run(["sh", "-c", tested], capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stderr
    check, run, plot = commands
    assert "keeps all 7 laws" in ran(check)
    ran(run)
    ran(plot)
    assert "<svg" in Path("short-wait.svg").read_text()
    claimed = re.findall(r"([\d.]+) ± ([\d.]+)", text)
    reported = []
    for point in json.loads(ran("results short-wait --json"))["points"]:
        means = {metric["name"]: metric for metric in point["metrics"] if metric["subject"] == "download"}
        if point["parameters"]["queue"] != "droptail":
            assert means["retransmissions"]["mean"] == 0
        reported.append(means["throughput"])
    for (mean, width), metric in zip(claimed, reported, strict=True):
        places = len(mean.partition(".")[2])
        half_bps = (metric["high_95"] - metric["low_95"]) / 2
        assert (f"{metric['mean'] / 1e6:.{places}f}", f"{half_bps / 1e6:.{places}f}") == (mean, width)
