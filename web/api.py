"""The JSON API's description (OpenAPI 3.1), made from the routes that exist and what their functions say."""

from __future__ import annotations

import inspect
import re
from typing import Any

from flask import Blueprint, Response, current_app, jsonify

from analysis.figures.registry import FIGURES
from web.compare import overlaid

blueprint = Blueprint("api", __name__)

_CONVERTER = re.compile(r"<(?:\w+(?:\([^)]*\))?:)?(\w+)>")
_NUMBER = {"type": "number"}
_TEXT = {"type": "string"}
#: Meaning and schema of each parameter, of paths and queries.
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "campaign_id": ("A campaign's id.", _TEXT),
    "run_id": ("A run's id, all 24 digits.", _TEXT),
    "import_id": ("Of an upload, as it was answered.", _TEXT),
    "file": ("A campaign file's name, as /api/files gives it.", _TEXT),
    "number": ("A request's number.", {"type": "integer"}),
    "action": (
        "What to do.",
        {"type": "string", "enum": ["rerun", "resume", "cancel", "archive", "delete", "restore"]},
    ),
    "removal": ("What to do.", {"type": "string", "enum": ["archive", "delete"]}),
    "flow": ("A flow's name; of a queue, LINK/DIRECTION.", _TEXT),
    "from": ("Beginning of the period, in s.", _NUMBER),
    "to": ("End of the period, in s.", _NUMBER),
    "seq": ("First byte of a segment, from 0.", {"type": "integer"}),
    "payload": ("Bytes of data of a segment.", {"type": "integer"}),
    "at": ("When it left, in s, to 1 us.", _NUMBER),
    "side": ("At whose interface.", {"type": "string", "enum": ["sender", "receiver"]}),
    "filter": ("Words that all hold: data, ack, a flag, a class or the number of a byte.", _TEXT),
    "where": ("A limit that runs keep, METRIC/FLOW <= VALUE; repeatable.", _TEXT),
    "tag": ("A tag of a run's note.", _TEXT),
    "tail": ("The last ones instead of the first.", {"type": "integer", "enum": [1]}),
    "q": ("Words that what is found must hold.", _TEXT),
    "state": ("Of a run; all without it.", {"type": "string", "enum": ["valid", "invalid", "missing"]}),
    "sort": ("point, repetition, state, landed, a swept field, or METRIC/FLOW.", _TEXT),
    "order": ("asc, or desc.", {"type": "string", "enum": ["asc", "desc"]}),
    "page": ("From 1 on.", {"type": "integer", "minimum": 1}),
    "run": ("A run; repeatable.", _TEXT),
    "point": ("CAMPAIGN:NUMBER; repeatable.", _TEXT),
    "as": ("FLOW:FLOW of the first, with which it is compared, or FLOW: for none; repeatable.", _TEXT),
    "campaign": ("Only this campaign.", _TEXT),
    "once": ("One event, and no stream.", {"type": "integer", "enum": [1]}),
}
#: Query parameters of an endpoint.
QUERIES = {
    "campaign_exports.all_as_json": ("q", "page"),
    "campaign_exports.runs_as_json": ("q", "state", "tag", "where", "sort", "order", "page"),
    "runs.segments": ("flow", "side", "from", "to", "tail", "filter"),
    "runs.cross": ("from", "to"),
    "runs.idle": ("flow",),
    "runs.fate": ("flow", "seq", "payload", "at"),
    "runs.plot": ("flow", "from", "to"),
    "compare.as_json": ("run", "point", "as"),
    "compare.plot": ("run", "point", "as", "flow", "from", "to"),
    "live.events": ("campaign", "once"),
}
_CAMPAIGN_BODY = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "description": "The campaign file."},
        "file": {"type": "string", "description": "Its name in messages."},
        "overrides": {"type": "array", "items": _TEXT, "description": "As --set takes them."},
        "force": {"type": "boolean", "description": "Run again what the store has."},
    },
}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "launch.submit": ("application/json", _CAMPAIGN_BODY),
    "launch.check_as_json": ("application/json", _CAMPAIGN_BODY),
    "launch.build_as_json": ("application/x-www-form-urlencoded", {"type": "object", "additionalProperties": _TEXT}),
    "imports.submit": (
        "multipart/form-data",
        {
            "type": "object",
            "required": ["capture"],
            "properties": {
                "capture": {"type": "array", "items": {"type": "string", "format": "binary"}},
                "label": {"type": "string", "description": "Name of the run in tables."},
                "note": {"type": "string", "description": "A remark that is stored with it."},
            },
        },
    ),
}


def _object(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """An object that has at least these."""
    named = {**dict.fromkeys(required, {}), **properties}
    return {"type": "object", "required": list(named), "properties": named}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_WHOLE, _FLAG = {"type": "integer"}, {"type": "boolean"}
_REQUEST = _object(
    "campaign_id",
    "taken",
    "finished",
    "runner",
    id=_WHOLE,
    state=_TEXT,
    file=_TEXT,
    message=_TEXT,
    overrides=_list(_TEXT),
    asked=_NUMBER,
)
_IMPORT = _object(id=_TEXT, names=_list(_TEXT), bytes=_NUMBER, state=_TEXT, said=_TEXT, runs=_list(_TEXT))
_VERDICT = _object(problems=_list(_TEXT), warnings=_list(_TEXT))
_HEALTH = _object(healthy=_FLAG, store=_TEXT, results=_TEXT, runner=_TEXT, disk=_TEXT)
_SET_ASIDE = _object(campaign=_TEXT, message=_TEXT)
#: What a good answer holds at least, of the main routes.
ANSWERS: dict[str, dict[str, Any]] = {
    "monitoring.health": _HEALTH,
    "home.attention_as_json": _object(invalid=_list({}), failed=_list({}), unfinished=_list({})),
    "campaign_exports.all_as_json": _list(
        _object(
            id=_TEXT,
            name=_TEXT,
            title=_TEXT,
            state=_TEXT,
            runs=_WHOLE,
            valid=_WHOLE,
            invalid=_WHOLE,
            backend=_TEXT,
            started=_NUMBER,
        )
    ),
    "campaign_exports.as_json": _object(campaign=_TEXT, state=_TEXT, points=_list({"type": "object"})),
    "campaign_exports.progress": _object(state=_TEXT, runs=_WHOLE, valid=_WHOLE, progress={"type": "object"}),
    "campaign_exports.runs_as_json": _object(
        total=_WHOLE,
        page=_WHOLE,
        per_page=_WHOLE,
        runs=_list(
            _object("landed", "seed", run_id=_TEXT, point=_WHOLE, repetition=_WHOLE, state=_TEXT, metrics=_list({}))
        ),
    ),
    "campaigns.act_by_json": _object(request=_WHOLE, message=_TEXT),
    "runs.act_by_json": _SET_ASIDE,
    "runs.as_json": _object(
        id=_TEXT,
        state=_TEXT,
        backend=_TEXT,
        scenario={"type": "object"},
        manifest={"type": "object"},
        metrics=_list({}),
        files=_list({}),
    ),
    "runs.idle": _object(longer_than_s=_NUMBER, periods=_list(_list(_NUMBER))),
    "runs.segments": _object(total=_WHOLE, segments=_list({"type": "object"})),
    "runs.plot": _object("y", series=_list({"type": "object"})),
    "compare.as_json": _object(subjects=_list(_object(of=_TEXT, label=_TEXT)), metrics=_list({"type": "object"})),
    "scorecard.as_json": _object("between_backends", artefacts=_list({}), count={"type": "object"}),
    "launch.files_as_json": _list(_TEXT),
    "launch.file_as_json": _object(file=_TEXT, text=_TEXT),
    "launch.all_as_json": _object(requests=_list(_REQUEST), runners=_list({"type": "object"})),
    "launch.as_json": _REQUEST,
    "launch.withdraw_by_json": _REQUEST,
    "launch.submit": _object(problems=_list(_TEXT), request=_WHOLE, id=_TEXT, runs=_WHOLE),
    "launch.check_as_json": _VERDICT,
    "launch.build_as_json": _object(text=_TEXT),
    "imports.all_as_json": _list(_IMPORT),
    "imports.as_json": _IMPORT,
    "imports.submit": _IMPORT,
}
#: Other answers with a form of their own: status to what it means, and its schema.
OTHER_ANSWERS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "campaigns.act_by_json": {"200": ("It is archived, deleted or restored.", _SET_ASIDE)},
    "launch.submit": {"422": ("What the validator says of it.", _VERDICT)},
    "monitoring.health": {"503": ("What does not work.", _HEALTH)},
}
#: Version of the API (docs/versions.md).
VERSION = "0.1.0"
#: Answers of 200 to a POST: nothing is left to be done.
AT_ONCE = ("runs.act_by_json", "launch.check_as_json", "launch.build_as_json", "launch.withdraw_by_json")


@blueprint.get("/api/openapi.json")
def openapi() -> Response:
    """The description of the JSON API."""
    return jsonify(describe())


def describe() -> dict[str, Any]:
    """The OpenAPI document of the current application."""
    paths: dict[str, Any] = {}
    for rule in sorted(current_app.url_map.iter_rules(), key=lambda item: item.rule):
        if not rule.rule.startswith("/api/"):
            continue
        function = current_app.view_functions[rule.endpoint]
        text = inspect.getdoc(function) or ""
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            operation: dict[str, Any] = {
                "operationId": rule.endpoint.replace(".", "_"),
                "summary": text.split("\n\n")[0],
                "parameters": [
                    *(_parameter(name, "path", rule.endpoint) for name in _CONVERTER.findall(rule.rule)),
                    *(_parameter(name, "query") for name in QUERIES.get(rule.endpoint, ())),
                ],
                "responses": {
                    "202" if method == "POST" and rule.endpoint not in AT_ONCE else "200": {
                        "description": text.split("\n\n")[0],
                        "content": {
                            "text/event-stream" if rule.endpoint == "live.events" else "application/json": (
                                {"schema": ANSWERS[rule.endpoint]} if rule.endpoint in ANSWERS else {}
                            )
                        },
                    },
                    "default": {"$ref": "#/components/responses/Problem"},
                },
            }
            for status, (meaning, schema) in OTHER_ANSWERS.get(rule.endpoint, {}).items():
                operation["responses"][status] = {
                    "description": meaning,
                    "content": {"application/json": {"schema": schema}},
                }
            if rule.endpoint in BODIES:
                kind, schema = BODIES[rule.endpoint]
                operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
            paths.setdefault(_CONVERTER.sub(r"{\1}", rule.rule), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Backchannel",
            "version": VERSION,
            "description": "Campaigns, runs and their plots. Quantities are in SI units, times in s. A POST from a "
            "script carries JSON and no cookies; where the site has a token, every request carries it.",
        },
        "paths": paths,
        "components": {
            "responses": {
                "Problem": {
                    "description": "What is wrong, in a sentence.",
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}
                    },
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _parameter(name: str, place: str, endpoint: str = "") -> dict[str, Any]:
    if name == "kind":
        kinds = list(overlaid() if endpoint == "compare.plot" else FIGURES)
        text, schema = "Which plot.", {"type": "string", "enum": kinds}
    else:
        text, schema = PARAMETERS[name]
    return {"name": name, "in": place, "required": place == "path", "description": text, "schema": schema}
