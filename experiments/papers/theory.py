"""The papers' arithmetic: artefacts that are computed, not measured, each as a formula with its source.

Rates are in bit/s, times in s, sizes in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from analysis.metrics import jain
from experiments.papers.table import Table, TableCell

#: A measure and a cell of it.
Computed = tuple[str, TableCell]


def bandwidth_ratio(forward_bps: float, reverse_bps: float, data_bytes: float, ack_bytes: float) -> float:
    """K = (C_f/C_r)/(S_data/S_ack): acks per data packet that the reverse line cannot carry beyond 1 (asym 4.2.1)."""
    return (forward_bps / reverse_bps) / (data_bytes / ack_bytes)


def ack_limited_rate(forward_bps: float, k: float, packets_per_ack: float) -> float:
    """Forward throughput when acks are never lost and fill the reverse line: C_f·d/k (asym 4.2.1)."""
    return forward_bps * packets_per_ack / k


def transmission_time(size_bytes: float, rate_bps: float) -> float:
    """Time of a packet on a line, in s."""
    return size_bytes * 8 / rate_bps


def window_rate(window_bytes: float, period_s: float) -> float:
    """A window in each period, in bit/s (asym 7.1.3, 9.1.1)."""
    return window_bytes * 8 / period_s


def pure_delay_product(rate_bps: float, rtt_s: float) -> float:
    """Bandwidth-delay product in bytes."""
    return rate_bps * rtt_s / 8


def aq_rates(uplink_bps: float, downlink_bps: float, ack_bytes: float, data_bytes: float) -> tuple[float, float]:
    """Rates R_D and R_A of data and acks on the uplink that fill both directions (aq 2, equations 5 and 6): data up
    and its acks down fill the downlink with the data down, R_D + R_A = C_u and R_A/r_s + R_D·r_s = C_d with r_s =
    S_A/S_D.
    """
    r_s = ack_bytes / data_bytes
    data = (uplink_bps - downlink_bps * r_s) / (1 - r_s * r_s)
    return data, uplink_bps - data


def packets_per_ack(stack: str, window: float, a: float) -> float:
    """D of each receiver (pulsed 3.1, 3.2.3). Pulsed ACK, as its rule is printed, holds acks back while fewer than
    w/a packets are counted: ceil(w/a) are, and the next is acknowledged.
    """
    match stack:
        case "Original TCP" | "Regular TCP":
            return 1.0
        case "Delayed ACK":
            return 2.0
    return math.ceil(window / a) + 1.0


def pulsed_uplink(a: float, rtt_s: float, ack_bytes: float) -> float:
    """A acks in each round trip, in bit/s (pulsed 3.1)."""
    return a * ack_bytes * 8 / rtt_s


def _asym_claim_k() -> Iterable[Computed]:
    forward = 10e6
    for reverse, rate, ack in (
        ("100k", 100e3, 40),
        ("28.8k-slip", 28.8e3, 52),
        ("28.8k-cslip", 28.8e3, 18),
        ("ethernet-10M", 10e6, 52),
    ):
        k = bandwidth_ratio(forward, rate, 1000, ack)
        yield _cell("normalized_bandwidth_ratio", k, reverse=reverse, ack_bytes=ack)
        yield _cell("throughput_bound", ack_limited_rate(forward, k, 2), reverse=reverse)


def _asym_claim_1kb_tx() -> Iterable[Computed]:
    yield _cell("transmission_time", transmission_time(1000, 28.8e3))


def _asym_claim_ack_queue() -> Iterable[Computed]:
    yield _cell("queueing_delay", transmission_time(10 * 6, 9600))
    yield _cell("normalized_bandwidth_ratio", bandwidth_ratio(10e6, 9600, 1000, 6))


def _asym_claim_reverse_bdp() -> Iterable[Computed]:
    yield _cell("bandwidth_delay_product", pure_delay_product(28.8e3, 0.5))


def _asym_claim_forward_bound() -> Iterable[Computed]:
    # 100 packets of 1000 bytes while one of them crosses the reverse line.
    yield _cell("throughput_bound", window_rate(100 * 1000, round(transmission_time(1000, 28.8e3), 2)))


def _asym_claim_burst_bound() -> Iterable[Computed]:
    yield _cell("throughput_bound", window_rate(3 * 1424, 0.01))


def _asym_claim_measured_bound() -> Iterable[Computed]:
    # A reverse segment of 1424 bytes with its IP and TCP headers and the timestamp option, at the modem's 28.8 kbit/s.
    yield _cell("throughput_bound", window_rate(150_000, transmission_time(1424 + 52, 28.8e3)))


def _asym_claim_fairness_bounds() -> Iterable[Computed]:
    for k in (1, 3, 4):
        yield _cell("fairness_index", jain([1.0] * k + [0.0] * (4 - k)) or 0.0, n=4, k=k)


def _ton_claim_error_rate() -> Iterable[Computed]:
    yield _cell("bit_error_rate", 1 / (65536 * 8))
    # A packet of 1400 bytes of data with 40 of headers and 12 of timestamps, as the campaigns' error model counts it,
    # is hit with 1 − exp(−length/65 536).
    hit = 1 - math.exp(-1452 / 65536)
    yield _cell("packet_error_rate", hit)
    yield _cell("goodput_wireless_max", 100 * (1 - hit))


def _ton_claim_bdp() -> Iterable[Computed]:
    yield _cell("bandwidth_delay_product", pure_delay_product(1.35e6, 0.135), path="WAN")
    yield _cell("bandwidth_delay_product", pure_delay_product(1.5e6, 0.01), path="LAN")


def _aq_claim_rule() -> Iterable[Computed]:
    data, acks = aq_rates(1e6, 10e6, 40, 1500)
    yield _cell("uplink_share_data", data / 1e6)
    yield _cell("uplink_share_ack", acks / 1e6)
    yield _cell("rate_ratio_data_ack", data / acks)


def _aq_claim_constraint() -> Iterable[Computed]:
    # C_u/C_d > S_A/S_D (equation 11); at 1 and 10 Mbit/s the packet must be longer than 40·10 bytes, 40 of them
    # headers.
    yield _cell("min_capacity_ratio", 40 / 1500)
    yield _cell("min_segment_bytes", 40 * 10 - 40)


def _aq_claim_delay() -> Iterable[Computed]:
    # Equations 12 and 13 with buffers of whole packets: 50 shared like the rates, against 50 of data.
    data, _ = aq_rates(1e6, 10e6, 40, 1500)
    packets = round(50 * data / 1e6)
    yield _cell("ratio_max_delay_AQ_over_DropTail", (packets / data) / (50 / 1e6))


def _pulsed_table1() -> Iterable[Computed]:
    yield _cell("packets_per_ack", packets_per_ack("Original TCP", 100, 5), option="Original TCP")
    yield _cell("packets_per_ack", packets_per_ack("Delayed ACK", 100, 5), option="Delayed ACK")
    yield _cell("packets_per_ack", packets_per_ack("Pulsed ACK", 100, 5), option="Pulsed ACK", cwnd=100, a=5)


def _pulsed_claim_a() -> Iterable[Computed]:
    for a in (5, 20):
        yield _cell("uplink_usage", pulsed_uplink(a, 0.1, 40), a=a)


def _pulsed_table2() -> Iterable[Computed]:
    for rate in (10_000_000, 100_000_000, 1_000_000_000):
        uses = {
            "Pulsed ACK": pulsed_uplink(5, 0.1, 40),
            **{option: rate * 40 / 1500 / packets_per_ack(option, 0, 5) for option in ("Regular TCP", "Delayed ACK")},
        }
        for option, use in uses.items():
            yield _cell("uplink_usage", use, option=option, link_bps=rate)
        yield _cell("ratio_regular_over_pulsed", uses["Regular TCP"] / uses["Pulsed ACK"], link_bps=rate)
        yield _cell("ratio_delayed_over_pulsed", uses["Delayed ACK"] / uses["Pulsed ACK"], link_bps=rate)


def _pulsed_table3() -> Iterable[Computed]:
    for rate in (64_000, 1_000_000):
        for option in ("Regular TCP", "Delayed ACK"):
            bound = rate * 1500 / 40 * packets_per_ack(option, 0, 5)
            yield _cell("downlink_bound", bound, option=option, uplink_bps=rate)


def _pulsed_claim_small_window() -> Iterable[Computed]:
    # Below cwnd a, w/a is less than 1: one packet is held back, the second is acknowledged.
    yield _cell("rate_at_cwnd_5", window_rate(5 * 1500, 0.1))
    yield _cell("packets_per_ack", packets_per_ack("Pulsed ACK", 3, 5), cwnd=3)


def _acq_claim_min_t() -> Iterable[Computed]:
    yield _cell("min_interval", 2 * 1.2)


#: By artefact: the cells of its measures.
ARITHMETIC: Mapping[str, Callable[[], Iterable[Computed]]] = {
    "asym-claim-k": _asym_claim_k,
    "asym-claim-1kb-tx": _asym_claim_1kb_tx,
    "asym-claim-ack-queue": _asym_claim_ack_queue,
    "asym-claim-reverse-bdp": _asym_claim_reverse_bdp,
    "asym-claim-forward-bound": _asym_claim_forward_bound,
    "asym-claim-burst-bound": _asym_claim_burst_bound,
    "asym-claim-measured-bound": _asym_claim_measured_bound,
    "asym-claim-fairness-bounds": _asym_claim_fairness_bounds,
    "ton-claim-error-rate": _ton_claim_error_rate,
    "ton-claim-bdp": _ton_claim_bdp,
    "aq-claim-rule": _aq_claim_rule,
    "aq-claim-constraint": _aq_claim_constraint,
    "aq-claim-delay": _aq_claim_delay,
    "pulsed-table1": _pulsed_table1,
    "pulsed-claim-a": _pulsed_claim_a,
    "pulsed-table2": _pulsed_table2,
    "pulsed-table3": _pulsed_table3,
    "pulsed-claim-small-window": _pulsed_claim_small_window,
    "acq-claim-min-t": _acq_claim_min_t,
}


def _cell(measure: str, value: float, **labels: object) -> Computed:
    return measure, TableCell.exact({axis: str(label) for axis, label in labels.items()}, value)


class Arithmetic(Table):
    """Computed cells in place of a campaign's."""

    def __init__(self, cells: Iterable[Computed]) -> None:
        super().__init__({}, [], {}, {})
        self._computed = list(cells)

    def cells(self, name: str) -> list[TableCell]:
        """Every computed cell of a measure."""
        return [cell for measure, cell in self._computed if measure == name]


def results(artefact: str) -> Arithmetic | None:
    """An artefact's arithmetic; None for an artefact that was measured."""
    computed = ARITHMETIC.get(artefact)
    return None if computed is None else Arithmetic(computed())
