"""The papers' arithmetic, held against values worked out by hand."""

from __future__ import annotations

import pytest

from analysis.statistics import exact_interval
from experiments.papers import theory

#: (artefact, measure, labels, value): each value is worked out from the numbers in its row, not by the formulas.
BY_HAND: list[tuple[str, str, dict[str, object], float]] = [
    # 100 times the rate, 25 times the size; then 347.2 / 19.23, 347.2 / 55.56 and 1 / 19.23.
    ("asym-claim-k", "normalized_bandwidth_ratio", {"reverse": "100k", "ack_bytes": 40}, 4.0),
    ("asym-claim-k", "normalized_bandwidth_ratio", {"reverse": "28.8k-slip", "ack_bytes": 52}, 18.05556),
    ("asym-claim-k", "normalized_bandwidth_ratio", {"reverse": "28.8k-cslip", "ack_bytes": 18}, 6.25),
    ("asym-claim-k", "normalized_bandwidth_ratio", {"reverse": "ethernet-10M", "ack_bytes": 52}, 0.052),
    # 2500 acks of 320 bits a second, two packets of 8000 bits for each ack.
    ("asym-claim-k", "throughput_bound", {"reverse": "100k"}, 5e6),
    ("asym-claim-1kb-tx", "transmission_time", {}, 0.277778),
    ("asym-claim-ack-queue", "queueing_delay", {}, 0.05),
    ("asym-claim-ack-queue", "normalized_bandwidth_ratio", {}, 6.25),
    ("asym-claim-reverse-bdp", "bandwidth_delay_product", {}, 1800),
    # 800 000 bits in 0.28 s.
    ("asym-claim-forward-bound", "throughput_bound", {}, 2_857_143),
    ("asym-claim-burst-bound", "throughput_bound", {}, 3_417_600),
    # 1 200 000 bits in the 0.41 s of 1476 bytes.
    ("asym-claim-measured-bound", "throughput_bound", {}, 2_926_829),
    ("asym-claim-fairness-bounds", "fairness_index", {"n": 4, "k": 1}, 0.25),
    ("asym-claim-fairness-bounds", "fairness_index", {"n": 4, "k": 3}, 0.75),
    ("asym-claim-fairness-bounds", "fairness_index", {"n": 4, "k": 4}, 1.0),
    ("ton-claim-error-rate", "bit_error_rate", {}, 1.907349e-6),
    # x - x²/2 + x³/6 with x = 1452/65536 = 0.0221558.
    ("ton-claim-error-rate", "packet_error_rate", {}, 0.0219121),
    ("ton-claim-error-rate", "goodput_wireless_max", {}, 97.80879),
    ("ton-claim-bdp", "bandwidth_delay_product", {"path": "WAN"}, 22_781.25),
    ("ton-claim-bdp", "bandwidth_delay_product", {"path": "LAN"}, 1875),
    # (1 - 10·2/75) / (1 - (2/75)²) = 0.7333 / 0.999289.
    ("aq-claim-rule", "uplink_share_data", {}, 0.733855),
    ("aq-claim-rule", "uplink_share_ack", {}, 0.266145),
    ("aq-claim-rule", "rate_ratio_data_ack", {}, 2.757349),
    ("aq-claim-constraint", "min_capacity_ratio", {}, 0.0266667),
    ("aq-claim-constraint", "min_segment_bytes", {}, 360),
    # 37 packets at 0.733855 of the rate against 50 at all of it.
    ("aq-claim-delay", "ratio_max_delay_AQ_over_DropTail", {}, 1.008374),
    ("pulsed-table1", "packets_per_ack", {"option": "Original TCP"}, 1),
    ("pulsed-table1", "packets_per_ack", {"option": "Delayed ACK"}, 2),
    ("pulsed-table1", "packets_per_ack", {"option": "Pulsed ACK", "cwnd": 100, "a": 5}, 21),
    ("pulsed-claim-a", "uplink_usage", {"a": 5}, 16_000),
    ("pulsed-claim-a", "uplink_usage", {"a": 20}, 64_000),
    # An ack of 40 bytes for each 1500, or each 3000.
    ("pulsed-table2", "uplink_usage", {"option": "Regular TCP", "link_bps": 10_000_000}, 266_667),
    ("pulsed-table2", "uplink_usage", {"option": "Delayed ACK", "link_bps": 1_000_000_000}, 13_333_333),
    ("pulsed-table2", "uplink_usage", {"option": "Pulsed ACK", "link_bps": 100_000_000}, 16_000),
    ("pulsed-table2", "ratio_regular_over_pulsed", {"link_bps": 100_000_000}, 166.6667),
    ("pulsed-table2", "ratio_delayed_over_pulsed", {"link_bps": 10_000_000}, 8.33333),
    ("pulsed-table3", "downlink_bound", {"option": "Regular TCP", "uplink_bps": 64_000}, 2_400_000),
    ("pulsed-table3", "downlink_bound", {"option": "Delayed ACK", "uplink_bps": 1_000_000}, 75_000_000),
    ("pulsed-claim-small-window", "rate_at_cwnd_5", {}, 600_000),
    ("pulsed-claim-small-window", "packets_per_ack", {"cwnd": 3}, 2),
    ("acq-claim-min-t", "min_interval", {}, 2.4),
]


@pytest.mark.parametrize(("artefact", "measure", "labels", "value"), BY_HAND)
def test_each_artefact_of_arithmetic_has_the_value_worked_out_by_hand(
    artefact: str, measure: str, labels: dict[str, object], value: float
) -> None:
    computed = theory.results(artefact)
    assert computed is not None
    wanted = {axis: str(label) for axis, label in labels.items()}
    (cell,) = [cell for cell in computed.cells(measure) if cell.labels == wanted]
    assert cell.values == [pytest.approx(value, rel=2e-6)]
    assert cell.interval == exact_interval(cell.mean), "nothing is left to chance"


def test_every_artefact_of_arithmetic_is_worked_out() -> None:
    assert {artefact for artefact, *_ in BY_HAND} == set(theory.ARITHMETIC)
