from typing import Any

import pytest

from testbed.documents import DocumentError
from testbed.errors import TestbedError
from testbed.scenario import Scenario


def _direction(**more: Any) -> dict[str, Any]:
    return {"queue": {"name": "droptail"}, **more}


def _scenario(**more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "seed": 7,
        "duration_s": 50,
        "nodes": [{"name": "a", "kind": "host"}, {"name": "b", "kind": "host"}],
        "links": [
            {"name": "line", "kind": "point-to-point", "ends": ["a", "b"], "forward": _direction(rate_bps=28_800),
             "reverse": _direction()}
        ],
        "workload": [{"name": "bulk", "kind": "bulk", "from": "a", "to": "b", "port": 5000}],
        **more,
    }  # fmt: skip


def test_absent_stays_absent_and_reads_as_its_default() -> None:
    scenario = Scenario.read(_scenario())
    assert scenario.as_json() == _scenario()
    assert scenario.capture.snaplen == 128
    assert scenario.fidelity.stall_s == 0.05
    assert scenario.link("line").forward.delay_s == 0.0


def test_a_scenario_overrides_some_limits_and_keeps_the_others() -> None:
    scenario = Scenario.read(_scenario(fidelity={"delay_s": 0.03}))
    assert (scenario.fidelity.delay_s, scenario.fidelity.rate) == (0.03, 0.005)
    assert scenario.as_json()["fidelity"] == {"delay_s": 0.03}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"durations_s": 3}, "durations_s"),
        ({"nodes": [{"name": "a", "kind": "switch"}]}, "nodes.0.kind"),
        ({"workload": [{"name": "bulk", "kind": "bulk", "from": "a", "to": "b", "port": 70_000}]}, "workload.0.port"),
        ({"capture": {"snaplen": 96, "telemtry": False}}, "capture.telemtry"),
        ({"seed": True}, "seed"),
    ],
)
def test_an_error_names_the_wrong_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(DocumentError, match=f"^{field}: "):
        Scenario.read(_scenario(**change))


def test_parts_are_found_by_name() -> None:
    scenario = Scenario.read(_scenario())
    assert scenario.node("b").kind == "host"
    assert scenario.direction("line", "forward").rate_bps == 28_800
    assert scenario.flow("bulk").from_ == "a"
    with pytest.raises(TestbedError, match="no link 'wire'; it has: line"):
        scenario.link("wire")
