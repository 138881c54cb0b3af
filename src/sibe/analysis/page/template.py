"""What the package's HTML pages share: the template engine, and styles and scripts by name.

A page is one file: styles, scripts and data are inside it. Whatever comes from a run (names,
labels, configs) is escaped by the engine.
"""

from __future__ import annotations

import base64
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_SHARED = "sibe.analysis.page"


def page_environment(package: str) -> Environment:
    """Return the engine for the templates in the folder ``data`` of ``package``.

    ``asset(name)`` in a template is a text file of that folder, or one that all pages share.
    """
    environment = Environment(
        loader=PackageLoader(package, "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters["base64"] = to_base64
    environment.globals["asset"] = lambda name: asset(package, name)
    return environment


def asset(package: str, name: str) -> Markup:
    """Return a text file of ``package``'s data, or else of what all pages share."""
    own = files(package) / "data" / name
    file = own if own.is_file() else files(_SHARED) / "data" / name
    return Markup(file.read_text(encoding="utf-8"))


def to_base64(data: bytes) -> str:
    """Return bytes as a data URL wants them."""
    return base64.b64encode(data).decode()
