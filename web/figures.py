"""Figures on the site: the files that draw them in the browser, and their answers as JSON, SVG, PDF, PNG and CSV."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator

from cachetools import LRUCache
from flask import Blueprint, Response, abort
from markupsafe import Markup

from analysis.figures.model import Figure
from analysis.figures.page import STATIC
from web.picture import Picture

blueprint = Blueprint("figures", __name__, static_folder=str(STATIC), static_url_path="/static/figures")

MIMETYPES = {"svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png", "csv": "text/csv"}
#: Bytes of rendered files that are kept, by content: matplotlib takes up to a second for each.
MOST_BYTES = 64 << 20

_rendered: LRUCache[str, bytes] = LRUCache(MOST_BYTES, getsizeof=len)
_lock = threading.Lock()


def embedded(figure: Figure) -> Markup:
    """The figure's JSON for a script element of a page. Nothing in it can end the element."""
    return Markup(json.dumps(figure.as_json(), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def answer(figure: Figure, kind: str, name: str, table: Callable[[], str]) -> Response:
    """A figure as a file.

    Args:
        figure: the figure.
        kind: svg, pdf, png or csv.
        name: of the file, without its suffix.
        table: makes the CSV.
    """
    if kind not in MIMETYPES:
        abort(404, f"Unknown format {kind} of a figure; allowed: {', '.join(MIMETYPES)}.")
    return attachment(table() if kind == "csv" else rendered(figure, kind), kind, name)


def attachment(body: str | bytes | Iterator[str], kind: str, name: str) -> Response:
    """A file to be saved, of a figure or of a campaign."""
    # Names of flows and campaigns may hold anything, a header may not.
    plain = re.sub(r"[^\w.:@+-]", "_", name, flags=re.ASCII)[:120]
    headers = {"Content-Disposition": f'attachment; filename="{plain}.{kind}"'}
    if kind in ("svg", "png"):
        # Other pages, such as a notebook's, may show it. They cannot read it, and bring no cookie of this site.
        headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    return Response(body, mimetype=MIMETYPES.get(kind, "text/plain"), headers=headers)


def picture_file(picture: Picture, kind: str, name: str) -> Response:
    """A picture as SVG or PDF."""
    if kind not in ("svg", "pdf"):
        abort(404, f"Unknown format {kind} of a picture; allowed: svg, pdf.")
    return attachment(picture.svg() if kind == "svg" else picture.pdf(), kind, name)


def rendered(figure: Figure, kind: str) -> bytes:
    """What matplotlib draws, kept by the figure's content."""
    # The page has shown the figure before; only a file waits for matplotlib to load.
    from analysis.figures import printed

    key = f"{hashlib.sha256(str(embedded(figure)).encode()).hexdigest()}.{kind}"
    with _lock:
        if key in _rendered:
            return _rendered[key]
    made = printed.rendered(figure, kind, text=True)
    with _lock:
        if len(made) <= MOST_BYTES:
            _rendered[key] = made
    return made
