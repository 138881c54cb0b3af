"""Policies on the Hugging Face Hub: ``hf://user/name``, down and up.

Only config.json and model.safetensors are downloaded, whatever else a repository holds: neither can
run code, and both are checked as those of any export. ``HF_ENDPOINT``, ``HF_TOKEN`` and ``HF_HOME``
mean what they mean to ``huggingface_hub``; what was downloaded once is there without a network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sibe.errors import UserError
from sibe.policy.weights import WEIGHTS, is_export
from sibe.storage.run_files import CONFIG_JSON

_ADDRESS = re.compile(r"hf:/{1,2}(.*)")  # a Path of it has lost a slash
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def hub_name(run: str | Path) -> str | None:
    """Return "user/name" or "user/name@revision" if ``run`` is the address of a Hub repository."""
    found = _ADDRESS.fullmatch(str(run))
    return found[1] if found else None


def download(name: str) -> Path:
    """Return a local folder with the export that ``name``, as ``hub_name`` returns it, stands for.

    Raises:
        UserError: if there is no such repository, it holds no export, or the Hub is out of reach.
    """
    repository, _, revision = name.partition("@")
    api = _api(repository)
    with _as_user_error(f"cannot load hf://{name}"):
        folder = api.snapshot_download(
            repository, revision=revision or None, allow_patterns=[CONFIG_JSON, WEIGHTS]
        )
    path = Path(folder)
    if not is_export(path) or not (path / CONFIG_JSON).is_file():
        raise UserError(f"hf://{name} is not a policy of sibe: it lacks {CONFIG_JSON} or {WEIGHTS}")
    return path


def check_push(name: str) -> None:
    """Refuse a name that cannot be pushed to; ask before episodes are played."""
    _api(name)


def push(folder: Path, name: str) -> str:
    """Upload an export to the repository ``name``, made if it is missing; return its address."""
    api = _api(name)
    with _as_user_error(f"{folder} is written, but cannot be pushed to hf://{name}"):
        address = api.create_repo(name, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="sibe export")
    return str(address)


def _api(repository: str) -> Any:
    if not _NAME.fullmatch(repository):
        raise UserError(f"a repository on the Hub is user/name, not {repository!r}")
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UserError("the Hub needs huggingface_hub: pip install 'sibe[hub]'") from error
    # The endpoint of now, not that of when huggingface_hub was first imported.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    return HfApi(endpoint=endpoint, library_name="sibe", library_version=version("sibe"))


@contextmanager
def _as_user_error(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # its errors are those of one HTTP library or another
        status = getattr(getattr(error, "response", None), "status_code", None)
        denied = ": log in with `hf auth login` or set HF_TOKEN" if status in (401, 403) else ""
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{what} ({reason[:200]}){denied}") from error
