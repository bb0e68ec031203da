"""The figures and tables of docs/beyond.md, from a results folder: `PYTHONPATH=. python docs/beyond.py RESULTS`.

Draws what is there into docs/images/beyond and prints the tables; a campaign that was not run is told and passed over.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from analysis import campaign_file, frames
from analysis.figures.printed import save
from analysis.figures.published import CampaignFigure, make
from analysis.figures.spec import FigureSpec
from analysis.scorecard import results_table
from analysis.store import Store

IMAGES = Path(__file__).parent / "images" / "beyond"

#: Campaign to the measures that get a figure each: title, unit, and what is held fixed.
FIGURES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "kernel-cubic-bbr": [
        (
            f"{way}-{file}",
            {
                "y": {"measures": [way], "title": f"{way.capitalize()} transfer, {rate}", "unit": unit},
                "where": {"path": path},
            },
        )
        for path, file, rate in (("dialup", "dialup", "28.8 kbit/s"), ("128 kbit/s", "128", "128 kbit/s"))
        for way, unit in (("forward", "Mbit/s"), ("reverse", "kbit/s"))
    ],
    "links-of-today": [
        ("download", {"y": {"measures": ["download_share"], "title": "Download, of the link", "unit": "%"}}),
        ("upload", {"y": {"measures": ["upload_share"], "title": "Upload, of the link", "unit": "%"}}),
    ],
    "flow-counts": [
        ("download", {"y": {"measures": ["download_share"], "title": "Download, of the link", "unit": "%"}}),
        ("upload", {"y": {"measures": ["upload_share"], "title": "Upload, of the link", "unit": "%"}}),
    ],
    "ack-rates": [
        ("download", {"y": {"measures": ["download"], "title": "Download", "unit": "Mbit/s"}}),
        (
            "upload",
            {
                "y": {"measures": ["upload"], "title": "Upload", "unit": "Mbit/s"},
                "where": {"load": "with an upload"},
            },
        ),
        (
            "acks",
            {
                "y": {"measures": ["ack_rate"], "title": "Acks on the uplink", "unit": "Mbit/s"},
                "where": {"load": "downloads alone"},
            },
        ),
    ],
}


def main(results: Path) -> None:
    """Draws and prints everything."""
    store = Store.open(results)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, figures in FIGURES.items():
        found = next((one for one in store.campaigns() if one.name == name and one.valid), None)
        if found is None:
            print(f"{name}: not run in {results}")
            continue
        campaign = frames.find_campaign(store, found.id)
        file = campaign_file.read(campaign.text)
        table = results_table(store, campaign.id, campaign.text)
        print(f"\n{name}: {found.valid} of {found.runs} runs\n")
        figure = file.figure(campaign.backend)
        for title, changes in figures:
            spec = {**figure, **changes}
            spec["y"] = {**{key: value for key, value in figure["y"].items() if key == "range"}, **spec["y"]}
            if changes["y"]["measures"] != figure["y"]["measures"]:
                spec["y"].pop("range", None)
            drawn = make(FigureSpec.model_validate(spec), file.title, table)
            save(drawn.figure(), IMAGES / f"{name}-{title}.svg")
            print_table(drawn)
    store.close()


def print_table(drawn: CampaignFigure) -> None:
    """A figure's points as a Markdown table: mean and half of its 95 % confidence interval."""
    labels = [label for _, label in drawn.ticks]
    unit = drawn.spec.y.unit
    print(f"| {drawn.spec.y.title}, {unit} | " + " | ".join(labels) + " |")
    print("|---" * (len(labels) + 1) + "|")
    for curve in drawn.curves:
        cells = {point.label: point for point in curve.points}
        told = []
        for label in labels:
            point = next((one for key, one in cells.items() if drawn.spec.names.get(key, key) == label), None)
            if point is None or point.mean is None:
                told.append("-")
            elif point.estimate is None or point.low is None or point.high is None:
                told.append(f"{point.mean:.3g}")
            else:
                told.append(f"{point.mean:.3g} ± {(point.high - point.low) / 2:.2g}")
        print(f"| {curve.name or drawn.spec.y.title} | " + " | ".join(told) + " |")
    print()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
