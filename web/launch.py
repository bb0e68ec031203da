"""Launching: pick a campaign file or fill in a form, see what the validator says and what it will take, ask for it.

The site runs nothing: it enters a request, which `./backchannel serve runner` takes up.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    flash,
    g,
    jsonify,
    redirect,
    render_template,
    request,
    url_for,
)
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from werkzeug.datastructures import MultiDict

from analysis.store import requests
from analysis.store.rows import RequestRow
from experiments.api import (
    campaign_files,
    campaign_text,
    campaign_titles,
    congestion_controllers,
    fields_in_use,
    mechanisms,
    with_crates_in_use,
)
from web import campaign_data, guide
from web.campaigns import POINTS, network_picture, points_table
from web.check import Verdict, check

blueprint = Blueprint("launch", __name__)

MOST_TEXT = 200_000
#: Rows of the form.
FLOWS, AXES = 3, 3


@blueprint.get("/launch")
def show() -> str:
    """The page. A start is `file`, a campaign file; `profile`, a line by name; `example`, one of the guide's; or
    `campaign`, one that was run. `set` has overrides such as "stack=cubic".
    """
    text, name, overrides = "", "new.yaml", [override for override in request.args.getlist("set") if override.strip()]
    if request.args.get("file"):
        name = request.args["file"]
        text = _file(name)
    elif request.args.get("profile"):
        name, text = f"{request.args['profile']}.yaml", _on_profile(request.args["profile"])
    elif request.args.get("example"):
        text = guide.example(request.args.get("example", 0, int))
        if not text:
            abort(404, "The guide has no such example.")
    elif request.args.get("campaign"):
        campaign = g.store.campaign(request.args["campaign"])
        if campaign is None:
            abort(404, f"Unknown campaign {request.args['campaign']}.")
        name, text = Path(campaign.file).name, campaign.text
        # What it was run with; what the address says comes after, and so holds.
        overrides = [*(f"{field}={value}" for field, value in campaign.overrides.items()), *overrides]
    return _page(text, name, overrides, None, {})


@blueprint.post("/launch")
def act() -> Any:
    """Builds a file from the form, checks a text, or asks for it to be run."""
    form = request.form
    if form.get("do") == "build":
        text = build(form)
        return _page(text, "new.yaml", [], judge("new.yaml", text, []), form)
    text, name = form.get("text", ""), _name(form.get("file", ""))
    overrides = [line.strip() for line in form.get("overrides", "").splitlines() if line.strip()]
    asked_for = [*overrides, *([f"backend={form['run_backend']}"] if form.get("run_backend") else [])]
    verdict = judge(name, text, asked_for)
    if form.get("do") == "launch" and not verdict.problems:
        number = requests.ask_run(g.store, name, with_crates_in_use(text), asked_for, force=form.get("force") == "yes")
        waiting = "A runner will start it." if requests.runners(g.store) else ""
        flash(f"Request {number} submitted. {waiting}".strip())
        return redirect(url_for("launch.asked", number=number))
    return _page(text, name, overrides, verdict, form)


@blueprint.get("/requests/<int:number>")
def asked(number: int) -> str:
    """One request, and what became of it."""
    row = _known(number)
    # The store has the campaign once its first run has started.
    campaign = g.store.campaign_head(row.campaign_id) if row.campaign_id else None
    means = campaign_data.metric_figure(campaign) if campaign else None
    return render_template(
        "request.html",
        request_=row,
        runners=requests.runners(g.store),
        campaign=campaign,
        means=means,
        figure=means.figure() if means else None,
        table=points_table(campaign.id, campaign_data.points(campaign.id)[:POINTS]) if campaign else "",
    )


def _known(number: int) -> RequestRow:
    """A request; 404 if there is none."""
    row = requests.find(g.store, number)
    if row is None:
        abort(404, f"Unknown request {number}.")
    return row


@blueprint.post("/requests/<int:number>/withdraw")
def withdraw(number: int) -> Any:
    """Takes back a request that still waits."""
    done = requests.withdraw(g.store, number)
    flash("Request withdrawn." if done else "A runner has already started it; cancel the campaign instead.")
    return redirect(url_for("launch.asked", number=number))


@blueprint.post("/api/requests/<int:number>/withdraw")
def withdraw_by_json(number: int) -> Any:
    """Takes back a request that still waits; 409 when a runner has it already."""
    _known(number)
    if not requests.withdraw(g.store, number):
        abort(409, "The request is no longer waiting; cancel its campaign instead.")
    return jsonify(_known(number))


@blueprint.get("/api/files")
def files_as_json() -> Response:
    """Names of the campaign files that the site offers."""
    return jsonify(campaign_files())


@blueprint.get("/api/files/<path:file>")
def file_as_json(file: str) -> Response:
    """The text of a campaign file, with what it includes and its traces."""
    return jsonify({"file": file, "text": _file(file)})


@blueprint.get("/api/requests")
def all_as_json() -> Response:
    """The latest requests, and the runners that are there."""
    return jsonify({"requests": requests.recent(g.store, 50), "runners": requests.runners(g.store)})


@blueprint.get("/api/requests/<int:number>")
def as_json(number: int) -> Response:
    """One request."""
    return jsonify(_known(number))


@blueprint.post("/api/requests")
def submit() -> Any:
    """Asks for a campaign: {"text", "file", "overrides", "force"}; what is wrong with it comes back with status 422."""
    name, text, overrides, force = _body()
    verdict = judge(name, text, overrides)
    if verdict.problems:
        return jsonify(verdict.as_json()), 422
    number = requests.ask_run(g.store, name, with_crates_in_use(text), overrides, force)
    return jsonify({**_as_json(verdict), "request": number}), 202


@blueprint.post("/api/check")
def check_as_json() -> Response:
    """What the validator says of a campaign, what it will take, and its network as SVG. Nothing is submitted."""
    name, text, overrides, _ = _body()
    return jsonify(_as_json(judge(name, text, overrides)))


@blueprint.get("/api/completions")
def completions_as_json() -> Response:
    """What an editor of campaign files offers: `keys`, and `values` of fields that name mechanisms."""
    kinds = {
        "stack": "stack",
        "policy": "policy",
        "child": "policy",
        "topology": "topology",
        "backend": "backend",
        "profile": "profile",
        "model": "error-model",
        "middlebox": "middlebox",
    }
    values = {field: [entry.name for entry in mechanisms(kind)] for field, kind in kinds.items()}
    values["kind"] = [entry.name for kind in ("workload", "link") for entry in mechanisms(kind)]
    values["congestion"] = list(congestion_controllers())
    crates = {entry.crate for entry in mechanisms()} | set(congestion_controllers().values())
    values["from"] = [f"./{crate}" for crate in sorted(filter(None, crates))]
    return jsonify({"keys": _keys(), "values": values})


@cache
def _keys() -> list[str]:
    """Fields that the campaigns of the catalogue use, and options of mechanisms."""
    options = {parameter.name for entry in mechanisms() for parameter in entry.params}
    return sorted(fields_in_use() | options | set(SWEPT))


@blueprint.post("/api/build")
def build_as_json() -> Response:
    """A campaign file from the fields of the form."""
    return jsonify({"text": build(request.form)})


def judge(name: str, text: str, overrides: list[str]) -> Verdict:
    """The validator's verdict on a campaign."""
    if len(text) > MOST_TEXT:
        return Verdict([f"{name}: a campaign file has at most {MOST_TEXT} characters here"])
    if not text.strip():
        return Verdict(["There is nothing to check yet: choose a file, fill in the form, or write one."])
    verdict = check(str(current_app.config["RESULTS"]), name, with_crates_in_use(text), overrides)
    programs = verdict.summary["programs"] if verdict.summary else []
    if programs and not current_app.config["ALLOW_COMMANDS"]:
        return Verdict(
            [
                f"{name}: this campaign runs programs ({', '.join(programs)}), which this site does not accept; "
                "whoever serves it decides (./backchannel serve --allow-commands), or run the file yourself "
                "(./backchannel run)"
            ]
        )
    return verdict


def _as_json(verdict: Verdict) -> dict[str, Any]:
    if verdict.problems:
        return verdict.as_json()
    return {**verdict.as_json(), "picture": str(network_picture(verdict.scenario))}


def build(form: MultiDict[str, str]) -> str:
    """A campaign file from the fields of the form; what is left empty is left out."""
    given = {key: text for key, value in form.items() if (text := value.strip())}

    def fields(prefix: str, *keys: str) -> dict[str, Any]:
        return {key: given[prefix + key] for key in keys if prefix + key in given}

    axes: dict[str, list[Any]] = {}
    for number in range(AXES):
        if name := given.get(f"axis.{number}.field"):
            values = given.get(f"axis.{number}.values", "").split(",")
            axes[name] = [_plain(value.strip()) for value in values if value.strip()]

    def with_folder(named: dict[str, Any], field: str, crates: Mapping[str, str]) -> dict[str, Any]:
        """What is filled in, with the folder of its crate, or of the first crate that the sweep puts in its place."""
        names = (named.get(field.rpartition(".")[2], ""), *map(str, axes.get(field, ())))
        folders = [{"from": f"./{crates[name]}"} for name in names if crates.get(name)]
        return named | (folders[0] if folders else {})

    document: dict[str, Any] = {"name": given.get("name", "my-campaign"), **fields("", "title")}
    document["backend"] = given.get("backend", "sim")
    document["network"] = {"topology": given.get("topology", "asymmetric-path")}
    policies = {entry.name: entry.crate for entry in mechanisms("policy")}
    for side in ("forward", "reverse"):
        direction = fields(f"{side}.", "rate", "delay")
        queue = with_folder(fields(f"{side}.", "policy", "limit"), f"network.{side}.queue.policy", policies)
        if direction or queue:
            document["network"][side] = direction | ({"queue": queue} if queue else {})
    stack = {"name": given["stack"]} if "stack" in given else {}
    stack = with_folder(stack | fields("", "congestion"), "stack.congestion", congestion_controllers())
    if stack:
        document["stack"] = stack["name"] if list(stack) == ["name"] else stack
    flows = [fields(f"flow.{number}.", "name", "from", "to", "start", "size", "count") for number in range(FLOWS)]
    document["workload"] = [{key: _range(value) for key, value in flow.items()} for flow in flows if flow]
    document["duration"] = given.get("duration", "30 s")
    if axes:
        document["sweep"] = axes
    document |= {key: _plain(text) for key, text in fields("", "repetitions", "seed").items()}
    return to_yaml(document)


def to_yaml(document: dict[str, Any]) -> str:
    """A document as the campaign files write it: small mappings in one line."""

    def shaped(value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            made = CommentedMap({key: shaped(item, depth + 1) for key, item in value.items()})
            if depth > 1:
                made.fa.set_flow_style()
            return made
        if isinstance(value, list):
            listed = CommentedSeq([shaped(item, depth + 1) for item in value])
            if not any(isinstance(item, dict) for item in value):
                listed.fa.set_flow_style()
            return listed
        return value

    yaml, text = YAML(), io.StringIO()
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(shaped(document, 0), text)
    return text.getvalue()


def _on_profile(name: str) -> str:
    """A first campaign on a line: both directions at once, with a choice of queue policies; 404 for other names."""
    known = {mechanism.name: mechanism.summary for mechanism in mechanisms("profile")}
    if name not in known:
        abort(404, f"Unknown profile {name}.")
    return to_yaml(
        {
            "name": re.sub(r"[^a-z0-9]+", "-", name),
            "title": f"Both directions over {known[name]}",
            "backend": "sim",
            "network": {"topology": "asymmetric-path", "profile": name},
            "stack": "newreno",
            "workload": [
                {"name": "download", "from": "server", "to": "client", "start": ["0 s", "0.2 s"]},
                {"name": "upload", "from": "client", "to": "server", "start": ["2 s", "3 s"]},
            ],
            "duration": "30 s",
            "sweep": {"network.reverse.queue.policy": ["droptail", "acks-first", "ack-filtering"]},
            "repetitions": 5,
        }
    )


def same_with_options() -> list[str]:
    """Overrides that are offered while somebody types: stacks, backends, repetitions, queue policies."""
    kinds = {"stack": "stack", "backend": "backend", "network.reverse.queue.policy": "policy"}
    choices = [f"{field}={entry.name}" for field, kind in kinds.items() for entry in mechanisms(kind)]
    return [*choices, "repetitions=10", "duration=60 s", "seed=2"]


def _range(value: str) -> Any:
    """ "0 s, 0.5 s" is a pair to draw from."""
    parts = [part.strip() for part in value.split(",")]
    return parts if len(parts) > 1 else _plain(value)


def _plain(value: str) -> Any:
    """Numbers and truth values as YAML has them."""
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value)
    except ValueError:
        return value


def _body() -> tuple[str, str, list[str], bool]:
    body = request.get_json(silent=True)
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        abort(400, 'It must be JSON with "text", the campaign file; "file", "overrides" and "force" are optional.')
    overrides = body.get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(override, str) for override in overrides):
        abort(400, '"overrides" must be a list of texts such as "stack=cubic".')
    return _name(str(body.get("file", ""))), body["text"], overrides, body.get("force") is True


def _name(name: str) -> str:
    """A name for messages: never used as a path."""
    kept = "".join(c for c in name if c.isalnum() or c in "-_./ ")[:120].strip()
    return kept or "new.yaml"


def _file(name: str) -> str:
    """The text of a campaign file with what it includes, so that the text needs no other file; 404 for other names."""
    try:
        return campaign_text(name)
    except ValueError:
        abort(404, f"Unknown campaign file {name}.")


def _catalogue() -> dict[str, dict[str, str]]:
    """Titles of the campaign files by name, by the folder they are in."""
    titles: dict[str, dict[str, str]] = {}
    for name, title in campaign_titles().items():
        titles.setdefault(name.rpartition("/")[0] or "to begin with", {})[name] = title
    return titles


def _page(text: str, name: str, overrides: list[str], verdict: Verdict | None, form: Any) -> str:
    if verdict is None and text:
        verdict = judge(name, text, overrides)
    picture = network_picture(verdict.scenario) if verdict else ""
    return render_template(
        "launch.html",
        text=text,
        file=name,
        papers=_catalogue(),
        profiles=mechanisms("profile"),
        overrides="\n".join(overrides),
        verdict=verdict.as_json() if verdict else None,
        picture=picture,
        form=form,
        flows=FLOWS,
        axes=AXES,
        controllers=list(congestion_controllers()),
        runners=requests.runners(g.store),
        recent=requests.recent(g.store, 8),
        names={kind: [entry.name for entry in mechanisms(kind)] for kind in ("stack", "policy", "topology", "backend")},
        swept=SWEPT,
        hosts=HOSTS,
    )


#: Hosts that a flow of the form can name, by topology.
HOSTS = {
    "asymmetric-path": ("server", "client"),
    "hybrid": ("server", "client"),
    "line": ("left", "right"),
    "wireless": ("server", "mobile"),
    "packet-radio": ("server", "mobile"),
}

#: What people sweep most, offered while they type; any field of the file may be named.
SWEPT = (
    "network.reverse.queue.policy",
    "network.forward.queue.policy",
    "network.reverse.rate",
    "network.forward.rate",
    "network.reverse.delay",
    "network.forward.delay",
    "network.reverse.queue.limit",
    "network.forward.queue.limit",
    "stack",
    "stack.congestion",
    "stack.ack_every",
    "stack.sack",
    "workload.0.size",
    "workload.0.count",
)
