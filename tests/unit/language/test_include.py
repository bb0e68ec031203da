"""Files that include others, and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import attached
from experiments.language import registry, source
from experiments.language.campaign import Plan, expand, load
from experiments.language.problems import CampaignError
from tests.support.campaign_texts import one_line

BASE = """\
name: base
network:
  topology: asymmetric-path
  forward: {rate: 10 Mbit/s, delay: 5 ms, queue: {policy: red, limit: 30 packets}}
  reverse: {rate: 28.8 kbit/s, delay: 50 ms, queue: {policy: droptail, limit: 10 packets}}
workload:
  - {name: forward, from: server, to: client}
duration: 35 s
warm_up: 5 s
sweep:
  stack: [reno, cubic]
repetitions: 3
"""


def write(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path / "own.yaml"


def problems_of(path: Path) -> list[str]:
    with pytest.raises(CampaignError) as caught:
        load(path)
    return str(caught.value).replace(f"{path.parent}/", "").split("\n")


def line(plan: Plan) -> dict:  # type: ignore[type-arg]
    return next(link for link in plan.runs[0].document.document["links"] if link["name"] == "bottleneck")


def test_a_file_overrides_what_it_includes(tmp_path: Path) -> None:
    changes = "network: {reverse: {rate: 9.6 kbit/s, queue: {limit: 5 packets}}}\nwarm_up: null\nsweep: null\n"
    plan = load(write(tmp_path, base=BASE, own=f"include: base.yaml\nname: own\n{changes}"))
    assert (plan.name, len(plan.points), plan.repetitions) == ("own", 1, 3)
    assert line(plan)["reverse"]["rate_bps"] == 9600
    assert line(plan)["reverse"]["queue"] == {"name": "droptail", "options": {"limit_packets": 5}}
    assert line(plan)["reverse"]["delay_s"] == 0.05
    assert "warm_up_s" not in plan.runs[0].document.document
    assert "# network:\n#   topology: asymmetric-path\n" in plan.text


def test_another_mechanism_loses_the_included_options(tmp_path: Path) -> None:
    base = BASE.replace("policy: red", "policy: red, min: 5 packets")
    own = write(tmp_path, base=base, own="include: base.yaml\nnetwork: {forward: {queue: {policy: droptail}}}\n")
    assert line(load(own))["forward"]["queue"] == {"name": "droptail", "options": {}}


def test_later_includes_override_earlier_ones_and_includes_nest(tmp_path: Path) -> None:
    slow = "include: base.yaml\nduration: 50 s\nseed: 4\n"
    plan = load(write(tmp_path, base=BASE, slow=slow, seeded="seed: 9\n", own="include: [slow.yaml, seeded.yaml]\n"))
    assert (plan.seed, plan.runs[0].document.document["duration_s"]) == (9, 50.0)


def test_a_campaign_with_includes_has_the_runs_of_the_included_file(tmp_path: Path) -> None:
    own = write(tmp_path, base=BASE, own="include: base.yaml\n")
    assert [run.id for run in load(own).runs] == [run.id for run in load(tmp_path / "base.yaml").runs]


def test_problems_name_the_included_file(tmp_path: Path) -> None:
    base = BASE.replace("28.8 kbit/s", "28.8 kb")
    problems = problems_of(write(tmp_path, base=base, own="include: base.yaml\nduration: 3 m\nseed: -1\n"))
    assert problems[0].startswith(("base.yaml:5: network.reverse.rate: 'kb' is not a unit of a rate", "own.yaml:2"))
    assert {problem.split(": ")[0] for problem in problems} == {"base.yaml:5", "own.yaml:2", "own.yaml:3"}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("include: nowhere.yaml\n", "own.yaml:1: include: nowhere.yaml does not exist"),
        ("name: a\ninclude: 3\n", "own.yaml:2: include: expected the name of a file, or a list of names"),
        ("include: [own.yaml]\n", "own.yaml:1: include: own.yaml includes itself through this file"),
        ("include: loop.yaml\n", "loop.yaml:1: include: own.yaml includes itself through this file"),
        ("include: broken.yaml\n", "broken.yaml:2: invalid YAML: "),
    ],
)
def test_failing_includes(tmp_path: Path, own: str, message: str) -> None:
    path = write(tmp_path, own=own, loop="include: own.yaml\n", broken="{a: [\n")
    (problem,) = problems_of(path)
    assert problem.startswith(message)


def test_included_files_are_attached_to_the_text(tmp_path: Path) -> None:
    slow = "include: base.yaml\nduration: 50 s\n"
    plan = load(write(tmp_path, base=BASE, slow=slow, own="include: slow.yaml\nname: own\n"))
    again = expand(source.parse("own.yaml", plan.text))
    assert [run.id for run in again.runs] == [run.id for run in plan.runs]
    assert again.text == plan.text
    # The same text in a file in another folder.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/own.yaml").write_text(plan.text)
    assert [run.id for run in load(tmp_path / "elsewhere/own.yaml").runs] == [run.id for run in plan.runs]
    wrong = plan.text.replace("28.8 kbit/s", "28.8 kb")
    with pytest.raises(CampaignError) as caught:
        expand(source.parse("own.yaml", wrong))
    assert "base.yaml:5: network.reverse.rate: 'kb' is not a unit" in str(caught.value)


def test_traces_are_attached_to_the_text(tmp_path: Path) -> None:
    (tmp_path / "air.up").write_text("1\n2\n2\n9\n")
    (tmp_path / "air.down").write_text("".join(f"{ms}\n" for ms in range(1, 3000)))
    (tmp_path / "loss").write_text("# lost\n3 4\n")
    text = (
        "name: traced\nduration: 5 s\nbackend: sim\nstack: newreno\n"
        "network: {topology: line, link: mahimahi, forward: {trace: air.down}, reverse: {trace: air.up}}\n"
        "workload: [{name: a, from: left, to: right}]\n"
        "sweep: {network.forward.trace: [air.down, air.up]}\n"
        "backends: {emulated: {network: {forward: {errors: [{model: recorded, trace: loss}]}}}}\n"
    )
    own = write(tmp_path, own=text)
    plan = load(own)
    again = expand(source.parse("own.yaml", plan.text))
    assert [run.id for run in again.runs] == [run.id for run in plan.runs]
    assert again.text == plan.text
    assert "loss, which is read above" in plan.text
    # An attached file may be damaged, or too large once decompressed.
    spoilt = plan.text.replace("base64):\n# ", "base64):\n# ?")
    for wrong, reason in ((plan.text[:-60], "incomplete|damaged"), (spoilt, "damaged")):
        with pytest.raises(ValueError, match=reason):
            [attached.body_of(wrong, name) for name in ("air.down", "air.up", "loss")]
    endless = attached.attach("name: a", {"big": "1\n" * attached.MAX_FILE_BYTES})
    with pytest.raises(ValueError, match="larger than 8 MiB"):
        attached.body_of(endless, "big")


def test_every_option_that_names_a_file_is_attached() -> None:
    params = [param for kind in registry.KINDS for entry in registry.of_kind(kind) for param in entry.params]
    assert {param.name for param in params if param.unit == "file"} == {source.TRACE}


def test_a_text_opens_no_file(tmp_path: Path) -> None:
    secret = write(tmp_path, own="name: secret\n")
    for name in (str(secret), f"../{secret.name}", "quickstart.yaml"):
        with pytest.raises(
            CampaignError, match="^new.yaml:2: include: files cannot be included here, and .* not attach"
        ):
            source.parse("new.yaml", f"name: a\ninclude: {name}\n")


DEFAULTS = """\
name: own
variation: none
network:
  nodes: [{name: a}, {name: b}, {name: r, kind: router}, {name: c}]
  links:
    - {name: a-r, ends: [a, r], forward: {delay: 1 ms}}
    - {name: b-r, ends: [b, r], forward: {delay: 2 ms, rate: 5 Mbit/s}}
    - {name: r-c, ends: [r, c], forward: {rate: 1 Mbit/s}, reverse: {queue: acks-first}}
workload:
  - {name: first, from: a}
  - {name: second, from: b, start: 2 s}
duration: 10 s
defaults:
  flow: {to: c, start: 1 s, size: 1 MB}
  direction: {rate: 10 Mbit/s, queue: {policy: droptail, limit: 7 packets}}
"""


def test_defaults_hold_where_a_field_is_not_set(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, own=DEFAULTS)).runs[0].document.document
    assert [(flow["to"], flow["start_s"], flow["bytes"]) for flow in scenario["workload"]] == [
        ("c", 1.0, 1_000_000), ("c", 2.0, 1_000_000),
    ]  # fmt: skip
    rates = {link["name"]: (link["forward"]["rate_bps"], link["reverse"]["rate_bps"]) for link in scenario["links"]}
    assert rates == {"a-r": (10**7, 10**7), "b-r": (5 * 10**6, 5 * 10**6), "r-c": (10**6, 10**7)}
    last = scenario["links"][-1]
    assert last["forward"]["queue"] == {"name": "droptail", "options": {"limit_packets": 7}}
    assert last["reverse"]["queue"]["name"] == "acks-first"


def test_problems_in_defaults_have_the_line_of_the_default(tmp_path: Path) -> None:
    wrong_unit = write(tmp_path, own=DEFAULTS.replace("size: 1 MB", "size: 1 Mbit/s"))
    assert problems_of(wrong_unit)[0].startswith("own.yaml:14: ")
    (problem,) = problems_of(write(tmp_path, own=DEFAULTS.replace("  flow:", "  flwo:")))
    assert problem.startswith("own.yaml:14: defaults.flwo: unknown default 'flwo'; did you mean 'flow'?")


def test_fields_of_a_backend_apply_to_that_backend_only() -> None:
    more = """\
capture: {at: [none], counters: {every: 1 s}}
backends:
  emulated:
    duration: 20 s
    capture: {at: [], counters: null}
"""
    text = one_line("both", more, duration="60 s").rstrip("\n") + "\n"
    file = source.parse("both.yaml", text)
    simulated = expand(file).runs[0].document.document
    assert simulated["duration_s"] == 60
    emulated = expand(file, ["backend=emulated"]).runs[0].document.document
    assert emulated["duration_s"] == 20
    assert emulated["capture"]["at"] == []
    # The virtual kernel has the same network, so it takes these fields unless the file has some for it.
    assert expand(file, ["backend=virtual-kernel"]).runs[0].document.document["duration_s"] == 20
    more = "  virtual-kernel: {duration: 5 s, capture: {at: [], counters: null}}\n"
    of_its_own = source.parse("both.yaml", text + more)
    assert expand(of_its_own, ["backend=virtual-kernel"]).runs[0].document.document["duration_s"] == 5
    assert expand(of_its_own, ["backend=emulated"]).runs[0].document.document["duration_s"] == 20
    with pytest.raises(CampaignError, match="unknown backend 'emulatd'"):
        expand(source.parse("both.yaml", text.replace("  emulated:", "  emulatd:")))
    # Problems below `backends` have the line there.
    with pytest.raises(CampaignError, match=r"both\.yaml:11"):
        expand(source.parse("both.yaml", text.replace("duration: 20 s", "duration: 20 kbit")), ["backend=emulated"])
