"""A web server for one page: a few fixed paths, on this machine only, for reading only.

A path is looked up, never joined to a folder. Pages of other sites that the user has open cannot
reach it: a request must name this server as its host (a foreign name that resolves to 127.0.0.1
does not count), come from the page itself, and only ask.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from sibe.errors import UserError

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answer(NamedTuple):
    """What is sent for a path."""

    kind: str
    """content type"""
    body: bytes
    policy: str = "default-src 'none'"
    """content security policy: what the browser may do with it"""


Answers = Mapping[str, Callable[[], Answer | None]]
"""What to send for each path; None where there is nothing yet, or no longer."""


class PageServer(ThreadingHTTPServer):
    """Serves ``answers`` on 127.0.0.1.

    Args:
        answers: the paths that exist.
        port: 0 for any that is free.
    """

    def __init__(self, answers: Answers, port: int = 0) -> None:
        self.answers = answers
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "in use" if error.errno == errno.EADDRINUSE else "not yours to use"
            raise UserError(
                f"port {port} is {why}: choose another --port, or leave it out"
            ) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve in a thread; afterwards the port is free."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 30  # seconds for a request to arrive
    server_version, sys_version = "sibe", ""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _refuse_method(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, _text("this server only answers GET"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse_method

    def _answer(self) -> None:
        if reason := self._foreign():
            self._send(HTTPStatus.FORBIDDEN, _text(reason))
            return
        make = self.server.answers.get(self.path.partition("?")[0])
        answer = make() if make else None
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, _text("there is no such page here"))
        else:
            self._send(HTTPStatus.OK, answer)

    def _foreign(self) -> str:
        """Return why the request is not one of the page's own; "" if it is."""
        port = self.server.server_port
        hosts = [f"{name}:{port}" for name in _NAMES]
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in hosts:
            return f"open http://localhost:{port}/ (a forwarded port must have the same number)"
        if origin is not None and origin != f"http://{host}":
            return "pages of other sites are not answered"
        # What a browser says of an image or script that a foreign page asks for, without Origin.
        # To follow a link here from elsewhere is fine.
        site = self.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin") and self.headers.get("Sec-Fetch-Mode") != "navigate":
            return "pages of other sites are not answered"
        return ""

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "GET, HEAD")
            policy = f"{answer.policy}; frame-ancestors 'none'"
            self.send_header("Content-Security-Policy", policy)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)
        except ConnectionError:
            self.close_connection = True  # the reader has left

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: a page that refreshes itself would fill the terminal."""


def _text(message: str) -> Answer:
    return Answer("text/plain; charset=utf-8", f"{message}\n".encode())
