"""The pages of `sibe demo` and `sibe watch`, to be served or to be saved.

Served, a page fetches its data from the server it came from; saved, it has all of it inside and its
content security policy forbids it the network. The only script that may run is the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from typing import Any

from markupsafe import Markup

from sibe.analysis.page.template import asset, page_environment
from sibe.watch.server import Answer

_PACKAGE = "sibe.watch"


def render(name: str, data: dict[str, Any], *, live: bool, **values: Any) -> Answer:
    """Return the page ``name``.

    Args:
        name: "demo" or "watch": the names of its template, script and style.
        data: what its script is given.
        live: whether it is served, and so may fetch.
        values: what its template is given.
    """
    script = Markup("").join(
        asset(_PACKAGE, file) for file in ("chart.js", "controls.js", f"{name}.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    source = "self" if live else "none"
    policy = (
        "default-src 'none'; img-src data:; media-src data: blob:; style-src 'unsafe-inline'; "
        f"connect-src '{source}'; script-src 'sha256-{digest}'"
    )
    page = page_environment(_PACKAGE).get_template(f"{name}.html")
    text = page.render(
        data={**data, "live": live},
        policy=policy,
        script=script,
        version=importlib.metadata.version("sibe"),
        **values,
    )
    return Answer("text/html; charset=utf-8", text.encode(), policy)
