"""`/api/health` for a load balancer or a person, `/metrics` for Prometheus."""

from __future__ import annotations

import shutil
import time

import sqlalchemy as sa
from flask import Blueprint, Response, current_app, g, jsonify

from analysis.store import Store, StoreError, requests
from analysis.store.schema import campaign, request, run
from analysis.verifying import damaged_rows
from testbed.units import number_of

blueprint = Blueprint("monitoring", __name__)

#: With less free space the next run may not fit into the store.
LEAST_FREE_BYTES = 200_000_000
OK = "ok"
#: Pause between looks at all rows. One takes about 2 s for 1,000 runs.
LOOK_EVERY_S = 3600.0


class Damage:
    """What the latest look at the rows of a store's results found (analysis/store/checksums.py)."""

    def __init__(self) -> None:
        self.state = OK

    def look(self, store: Store) -> None:
        """Compares every row with its checksum."""
        findings = list(damaged_rows(store))
        runs = len({finding.run_id for finding in findings if finding.run_id})
        what = f"{number_of(runs, 'run')} {'is' if runs == 1 else 'are'} damaged" if runs else "the database is damaged"
        self.state = f"{what}; './backchannel verify' names the damage and the runs to repeat" if findings else OK

    def watch(self, store: Store) -> None:
        """Looks every LOOK_EVERY_S, without end."""
        while True:
            self.look(store)
            time.sleep(LOOK_EVERY_S)


@blueprint.get("/api/health")
def health() -> tuple[Response, int]:
    """Whether store, runner and disk work; status 503 if one does not. Needs no token, and names no path."""
    damage: Damage = current_app.extensions["damage"]
    checks = {"store": _store(g.store), "results": damage.state, "runner": OK, "disk": _disk(g.store)}
    if checks["store"] == OK:
        checks["runner"] = _runner(g.store)
    healthy = all(state == OK for state in checks.values())
    return jsonify({"healthy": healthy, **checks}), 200 if healthy else 503


@blueprint.get("/metrics")
def metrics() -> Response:
    """Counts of the store and free space, in Prometheus' text format."""
    store: Store = g.store
    usage = shutil.disk_usage(store.folder)
    lines = []
    for name, table in (("runs", run), ("campaigns", campaign), ("requests", request)):
        lines.append(f"# HELP backchannel_{name} Number of {name} in the store by state.")
        lines.append(f"# TYPE backchannel_{name} gauge")
        counts = store.tuples(sa.select(table.c.state, sa.func.count()).group_by(table.c.state).order_by("state"))
        lines += [f'backchannel_{name}{{state="{state}"}} {count}' for state, count in counts]
    for name, text, value in (
        ("runners", "Number of runners that execute requests of the site.", len(requests.runners(store))),
        ("disk_free_bytes", "Free space of the file system of the results folder.", usage.free),
        ("disk_size_bytes", "Size of the file system of the results folder.", usage.total),
    ):
        lines += [
            f"# HELP backchannel_{name} {text}",
            f"# TYPE backchannel_{name} gauge",
            f"backchannel_{name} {value}",
        ]
    return Response("\n".join(lines) + "\n", content_type="text/plain; version=0.0.4; charset=utf-8")


def _store(store: Store) -> str:
    try:
        # A transaction that writes nothing shows that the database is readable and its folder writable.
        with store.writing() as connection:
            connection.execute(sa.update(request).where(request.c.id < 0).values(state=request.c.state))
    except (StoreError, OSError):
        return "the store cannot be written"
    return OK


def _runner(store: Store) -> str:
    waiting = requests.waiting(store)
    if waiting and not requests.runners(store):
        return (
            f"{number_of(waiting, 'request')} waiting, but no runner is connected; start './backchannel serve runner'"
        )
    return OK


def _disk(store: Store) -> str:
    try:
        free = shutil.disk_usage(store.folder).free
    except OSError:
        return "the results folder cannot be read"
    if free < LEAST_FREE_BYTES:
        return f"{free // 1_000_000} MB are free; runs need {LEAST_FREE_BYTES // 1_000_000} MB"
    return OK
