"""`check`: a crate of the user's is held to the laws, and its page shows what it does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments import law_page
from tests.conftest import backchannel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    for kind in ("policy", "controller"):
        backchannel("new", kind, folder / f"checked-{kind}", status=0)
    return folder


def changed(folder: Path, kind: str, before: str, after: str) -> Path:
    """The crate with another text at one place."""
    library = folder / f"checked-{kind}/src/lib.rs"
    text = library.read_text()
    assert before in text
    library.write_text(text.replace(before, after))
    return library.parent.parent


def test_a_good_policy_keeps_the_laws_and_its_page_shows_what_it_does(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    crate = folder / "checked-policy"
    done = backchannel("check", crate, "--option", "threshold_packets=3", "-o", page, timeout_s=1500, status=0)
    assert "policy checked-policy keeps all 7 laws" in done.stdout
    text = page.read_text()
    assert "| conservation | what enters leaves once, waits, or is reported once | 200 cases | holds |" in text
    # Three wait; then packets are dropped.
    assert "| a burst of 100 packets | checked-policy | 100 | 3 | 97 | 0 | 0 | 1.2 ms | 2.4 ms | 3 |" in text
    assert "| a burst of 100 packets | droptail | 100 | 20 | 80 |" in text


def test_html_in_a_name_or_message_is_text() -> None:
    page = law_page.as_html("a <b>", "| law | result |\n|---|---|\n| order | **broken**: <script>x</script> |")
    assert "<title>a &lt;b&gt;</title>" in page
    assert "<td><strong>broken</strong>: &lt;script&gt;x&lt;/script&gt;</td>" in page


def test_an_option_that_no_mechanism_has_is_refused(folder: Path) -> None:
    done = backchannel("check", folder / "checked-policy", "--option", "threshold=3", timeout_s=1500, status=2)
    assert "unknown option 'threshold'; did you mean 'threshold_packets'?" in done.stderr


def test_a_policy_that_loses_packets_silently_is_caught(folder: Path, tmp_path: Path) -> None:
    event = "events.record(now, EventKind::DroppedEarly, &packet);\n                return;"
    crate = changed(folder, "policy", event, "return;")
    try:
        done = backchannel("check", crate, "-o", tmp_path / "page.html", timeout_s=1500)
    finally:
        changed(folder, "policy", "                return;", f"                {event}")
    assert done.returncode == 1
    assert "policy checked-policy breaks: conservation" in done.stdout
    text = (tmp_path / "page.html").read_text()
    assert "<td><strong>broken</strong>: " in text
    assert "|" not in text


def test_a_controller_that_leaves_the_link_idle_is_caught(folder: Path, tmp_path: Path) -> None:
    crate = changed(folder, "controller", "self.0.decrease * bytes", "0.01 * self.0.decrease * bytes")
    changed(folder, "controller", "self.0.increase_segments * window.mss()", "0.001 * window.mss()")
    done = backchannel("check", crate, "-o", tmp_path / "page.md", timeout_s=1500, status=1)
    assert "controller checked-controller breaks: throughput of the standard set" in done.stdout


#: The law that each mechanism of broken.rs breaks; it keeps the others.
BREAKS = {
    "policy p-loses": "conservation",
    "policy p-reorders": "order",
    "policy p-early": "no time travel",
    "policy p-repeats": "idempotent polling",
    "policy p-grows": "bounded memory",
    "policy p-varies": "determinism",
    "policy p-hates-ipv6": "both versions of IP alike",
    "link l-loses": "conservation",
    "link l-reorders": "order",
    "link l-early": "no time travel",
    "link l-repeats": "idempotent polling",
    "link l-grows": "bounded memory",
    "link l-varies": "determinism",
    "middlebox m-loses": "conservation",
    "middlebox m-early": "no time travel",
    "middlebox m-repeats": "idempotent polling",
    "middlebox m-varies": "determinism",
    "workload w-early": "no time travel",
    "workload w-varies": "determinism",
    "controller c-idle": "throughput of the standard set",
    "controller c-varies": "determinism",
}


def test_each_law_of_each_kind_catches_a_crate_that_breaks_it(tmp_path: Path) -> None:
    crate = tmp_path / "broken"
    assert backchannel("new", "policy", crate).returncode == 0
    shutil.copy(Path(__file__).with_name("broken.rs"), crate / "src/lib.rs")
    done = backchannel("check", crate, "-o", tmp_path / "page.md", timeout_s=1500, status=1)
    said = [line.partition(" breaks: ") for line in done.stdout.splitlines() if " breaks: " in line]
    assert {mechanism: laws for mechanism, _, laws in said} == BREAKS
    for kind in ("policy p", "link l", "middlebox m", "workload w", "controller c"):
        assert f"{kind}-nothing keeps all" in done.stdout
