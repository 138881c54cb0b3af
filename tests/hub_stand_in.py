"""A stand-in for the Hugging Face Hub on this machine, answering its client from memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Files = dict[str, bytes]
_MODEL = r"/api/models/(?P<name>[^/]+/[^/]+)"


class Hub:
    """Repositories by name, and the requests that were made."""

    def __init__(self) -> None:
        self.repositories: dict[str, Files] = {}
        self.requests: list[str] = []
        self.validated: list[str] = []
        """heads of model cards that the client had checked"""
        self.endpoint = ""
        self.status = 0
        """answer everything with this HTTP status, unless 0"""

    def revision(self, name: str) -> str:
        """Return the commit of a repository: a hash of its files."""
        return hashlib.sha1(repr(sorted(self.repositories[name].items())).encode()).hexdigest()


@contextmanager
def hub_on_this_machine() -> Iterator[Hub]:
    """Serve a hub on a free port of 127.0.0.1 while the context lasts."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._refused():
            return
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.hub.repositories.setdefault(name, {})
            self._json({"url": f"{self.hub.endpoint}/{name}"})
        elif self.path == "/api/validate-yaml":
            self.hub.validated.append(json.loads(body)["content"])
            self._json({"errors": [], "warnings": []})
        elif re.fullmatch(f"{_MODEL}/preupload/main", self.path):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            self._json({"files": files})
        elif found := re.fullmatch(f"{_MODEL}/commit/main", self.path):
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.hub.repositories[found["name"]][line["value"]["path"]] = content
            sha = self.hub.revision(found["name"])
            url = f"{self.hub.endpoint}/{found['name']}/commit/{sha}"
            self._json({"success": True, "commitOid": sha, "commitUrl": url})
        else:
            self._send(404)

    def _get(self) -> None:
        if self._refused():
            return
        path = self.path.partition("?")[0]
        info = re.fullmatch(f"{_MODEL}(?:/revision/main)?", path)
        tree = re.fullmatch(f"{_MODEL}/tree/[0-9a-f]+", path)
        file = re.fullmatch(r"/(?P<name>[^/]+/[^/]+)/resolve/[0-9a-f]+/(?P<path>.+)", path)
        name = next((found["name"] for found in (info, tree, file) if found), "")
        if name not in self.hub.repositories:
            self._send(404, {"X-Error-Code": "RepoNotFound"})
            return
        files, sha = self.hub.repositories[name], self.hub.revision(name)
        if info:
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": name, "sha": sha, "siblings": siblings})
        elif tree:
            self._json(
                [
                    {"type": "file", "path": path, "size": len(data), "oid": _oid(data)}
                    for path, data in files.items()
                ]
            )
        elif file and file["path"] in files:
            data = files[file["path"]]
            self._send(200, {"X-Repo-Commit": sha, "ETag": f'"{_oid(data)}"'}, data)
        else:
            self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})

    def _refused(self) -> bool:
        self.hub.requests.append(f"{self.command} {self.path}")
        if self.hub.status:
            self._send(self.hub.status)
        return bool(self.hub.status)

    def _json(self, value: Any) -> None:
        self._send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _send(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
