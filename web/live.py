"""Live pages: server-sent events whenever somebody writes to the store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TypedDict

from flask import Blueprint, Response, current_app, g, request

from analysis.store import Store, requests
from analysis.store.pulse import Pulse
from analysis.store.rows import CampaignRow, ProgressRow
from experiments.api import duration_text, point_label
from testbed.units import rough

blueprint = Blueprint("live", __name__)

#: Streams at a time; each holds a thread of the server. Further clients get one event and ask again after RETRY_S.
STREAMS = 24
RETRY_S = 4
#: Seconds between two polls of the store, and between two comments that keep a quiet stream open.
POLL_S, KEEPALIVE_S = 0.4, 15.0
#: Seconds after which a stream ends; the browser opens the next.
LONGEST_S = 600.0


class CampaignState(TypedDict):
    """A campaign of an event."""

    id: str
    state: str
    runs: int
    valid: int
    invalid: int
    progress: ProgressRow
    #: Rate and time left, and what each cell is doing, for people.
    pace: str
    working: list[str]


class RequestState(TypedDict):
    """A request of an event."""

    id: int
    state: str
    campaign_id: str | None
    message: str


class Snapshot(TypedDict):
    """The data of an event."""

    campaigns: list[CampaignState]
    requests: list[RequestState]
    #: Connected runners.
    runners: int
    #: Runs by state.
    counts: dict[str, int]


class Watcher:
    """Polls the store for all streams together, while there are any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._count = 0
        self._streams = 0
        self._running = False
        self.closed = False

    def close(self) -> None:
        """Ends every stream, so that the server can stop."""
        # No lock: a signal handler calls this and may have interrupted the lock's holder.
        self.closed = True

    def acquire_stream(self) -> bool:
        """Takes a place for a stream; False if there is none."""
        with self._changed:
            if self._streams >= STREAMS:
                return False
            self._streams += 1
            if not self._running:
                self._running = True
                threading.Thread(target=self._watch, name="watcher", daemon=True).start()
            return True

    def release_stream(self) -> None:
        """Gives a stream's place back."""
        with self._changed:
            self._streams -= 1

    def wait(self, seen: int, timeout_s: float) -> int:
        """Waits for a change newer than `seen`, or for the timeout; returns the number of the newest."""
        with self._changed:
            ends = time.monotonic() + timeout_s
            while self._count == seen and not self.closed and time.monotonic() < ends:
                self._changed.wait(min(1.0, timeout_s))
            return self._count

    def _watch(self) -> None:
        pulse = Pulse(self._store)
        try:
            while True:
                with self._changed:
                    if not self._streams:
                        self._running = False
                        return
                if pulse.changed():
                    with self._changed:
                        self._count += 1
                        self._changed.notify_all()
                time.sleep(POLL_S)
        finally:
            pulse.close()


def snapshot(store: Store, campaign_id: str = "") -> Snapshot:
    """Running campaigns, recent requests, connected runners and the number of runs by state."""
    if campaign_id:
        head = store.campaign_head(campaign_id)
        running = [head] if head is not None else []
    else:
        running = store.campaigns(state="running")
    states = [
        CampaignState(
            id=campaign.id,
            state=campaign.state,
            runs=campaign.runs,
            valid=campaign.valid,
            invalid=campaign.invalid,
            progress=campaign.progress,
            pace=pace(campaign.progress),
            working=working(store, campaign),
        )
        for campaign in running
    ]
    asked = [
        RequestState(id=request.id, state=request.state, campaign_id=request.campaign_id, message=request.message)
        for request in requests.recent(store, 5, campaign_id or None)
    ]
    return Snapshot(campaigns=states, requests=asked, runners=len(requests.runners(store)), counts=dict(store.counts()))


def working(store: Store, campaign: CampaignRow) -> list[str]:
    """What each cell is doing, by the values of its point: "policy=droptail, repetition 2, running"."""
    cells = campaign.progress.get("cells", [])
    labels = _labels(store, campaign.id) if cells else {}
    return [
        ", ".join(
            part
            for part in (labels.get(cell["point"], ""), f"repetition {cell['repetition'] + 1}", str(cell["phase"]))
            if part
        )
        for cell in cells
    ]


@lru_cache(32)
def _labels(store: Store, campaign_id: str) -> dict[int, str]:
    """Points' labels by number; a campaign's points never change."""
    return {point.number: point_label(dict(point.parameters)) for point in store.points(campaign_id)}


def pace(progress: ProgressRow) -> str:
    """How fast a campaign is and how long it takes: "3.2 runs a minute, 4 min left"; empty before that is known."""
    rate, left_s = progress.get("per_minute"), progress.get("left_s")
    words = [] if rate is None else [f"{rough(rate)} runs a minute"]
    return ", ".join(words if left_s is None else [*words, f"{duration_text(left_s)} left"])


@blueprint.get("/api/events")
def events() -> Response:
    """A stream of `state` events, one for every change; `campaign` narrows it to one."""
    watcher: Watcher = current_app.extensions["watcher"]
    store, campaign_id = g.store, request.args.get("campaign", "")
    # HEAD gets no stream, because its client would never read it.
    stays = request.method == "GET" and request.args.get("once") is None and watcher.acquire_stream()
    stream = _stream(watcher, store, campaign_id) if stays else iter([_event(snapshot(store, campaign_id))])
    return Response(
        stream, mimetype="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )


def _stream(watcher: Watcher, store: Store, campaign_id: str) -> Iterator[str]:
    try:
        ends, seen, last = time.monotonic() + LONGEST_S, -1, ""
        while time.monotonic() < ends and not watcher.closed:
            now = _event(snapshot(store, campaign_id))
            yield ": still here\n\n" if now == last else now
            last = now
            seen = watcher.wait(seen, KEEPALIVE_S)
    finally:
        watcher.release_stream()


def _event(state: Snapshot) -> str:
    return f"retry: {RETRY_S * 1000}\nevent: state\ndata: {json.dumps(state)}\n\n"
