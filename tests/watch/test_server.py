"""The page's server: who is answered, what is not there, and that it ends without a trace."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Iterator

import pytest

from sibe.errors import UserError
from sibe.watch.serve import forwarding, has_display, serve
from sibe.watch.server import Answer, PageServer

PAGE = Answer("text/html; charset=utf-8", b"<p>hello", "default-src 'self'")
ANSWERS = {"/": lambda: PAGE, "/later.json": lambda: None}


@pytest.fixture
def server() -> Iterator[PageServer]:
    server = PageServer(ANSWERS)
    with server.running():
        yield server


def ask(
    server: PageServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Return status, body and headers; ``Host`` is the server's own unless given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    own = {"Host": f"127.0.0.1:{server.server_port}"}
    for name, value in (own | headers).items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


def test_the_page_and_its_headers(server: PageServer) -> None:
    status, body, headers = ask(server)
    assert (status, body, headers["Content-Type"]) == (200, PAGE.body, PAGE.kind)
    assert headers["Content-Security-Policy"] == "default-src 'self'; frame-ancestors 'none'"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Access-Control-Allow-Origin"] is None
    assert ask(server, "/?v=1")[0] == 200
    assert ask(server, Host=f"localhost:{server.server_port}")[0] == 200


def test_it_listens_on_this_machine_only(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize(
    "host", ["", "example.org", "example.org:{port}", "localhost", "localhost:1", "[::1]:{port}"]
)
def test_another_host_is_refused(server: PageServer, host: str) -> None:
    status, body, _ = ask(server, Host=host.format(port=server.server_port))
    assert status == 403
    assert f"http://localhost:{server.server_port}/".encode() in body


@pytest.mark.parametrize("origin", ["http://example.org", "null", "http://localhost:{port}"])
def test_another_origin_is_refused(server: PageServer, origin: str) -> None:
    origin = origin.format(port=server.server_port)  # that host name is not the one asked for
    assert ask(server, Origin=origin)[0] == 403
    assert ask(server, Origin=server.url[:-1])[0] == 200


def test_what_a_foreign_page_embeds_is_refused_but_a_link_is_not(server: PageServer) -> None:
    image = {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        assert ask(server, Sec_Fetch_Site=site, **image)[0] == status
    assert ask(server, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/later.json",
        "/nothing",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/./",
        "http://example.org/",
        "/etc/passwd",
        "/config.json",
    ],
)
def test_other_paths_are_not_there(server: PageServer, path: str) -> None:
    status, body, _ = ask(server, path)
    assert (status, body) == (404, b"there is no such page here\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_it_can_only_be_asked(server: PageServer, method: str) -> None:
    status, _, headers = ask(server, method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_sends_no_body(server: PageServer) -> None:
    status, body, headers = ask(server, method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(PAGE.body)))


def test_a_port_in_use_is_told_and_a_freed_one_is_taken_at_once() -> None:
    first = PageServer(ANSWERS)
    with first.running():
        with pytest.raises(UserError, match=f"port {first.server_port} is in use"):
            PageServer(ANSWERS, first.server_port)
        ask(first)
    again = PageServer(ANSWERS, first.server_port)
    with again.running():
        assert ask(again)[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(again)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_frees_the_port(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def end() -> None:
        os.kill(os.getpid(), number)
        time.sleep(10)

    # A test runner in the background of a shell ignores SIGINT.
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, default)
    try:
        with pytest.raises(KeyboardInterrupt):
            serve(ANSWERS, port=0, browser=False, meanwhile=end)
    finally:
        signal.signal(number, before)
    port = int(capsys.readouterr().out.split("127.0.0.1:")[1].split("/")[0])
    PageServer(ANSWERS, port).server_close()


def test_the_browser_is_opened_where_there_is_a_display(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)

    def start(browser: bool = True) -> str:
        with pytest.raises(KeyboardInterrupt):
            serve(ANSWERS, port=0, browser=browser, meanwhile=_interrupt)
        return capsys.readouterr().out

    url = start().split()[0]
    assert opened == [url]
    start(browser=False)
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.7 50000 203.0.113.5 2222")
    out = start()
    port = out.split("127.0.0.1:")[1].split("/")[0]
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in out
    assert opened == [url]


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_the_line_that_forwards_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    there = {"SSH_CONNECTION": "198.51.100.7 50000 203.0.113.5 22"}
    assert forwarding(8000, there) == "ssh -N -L 8000:127.0.0.1:8000 ada@203.0.113.5"
    there = {"SSH_CONNECTION": "198.51.100.7 50000 203.0.113.5 2222"}
    assert forwarding(8000, there) == "ssh -N -L 8000:127.0.0.1:8000 ada@203.0.113.5 -p 2222"
    assert forwarding(8000, {}) is None


def test_a_display_is_known_by_its_variables() -> None:
    assert has_display({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert not has_display({"DISPLAY": ""}, "linux")
    assert has_display({}, "darwin")
