"""What the site refuses: strangers, forged requests, other names, weak tokens, uploads without bounds."""

from __future__ import annotations

import gzip
import io
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.exceptions import TooManyRequests

from testbed.errors import TestbedError
from testbed.local_folders import ScratchFolder
from tests.conftest import backchannel
from tests.support.campaign_texts import one_line
from tests.support.simulated import Simulated
from tests.support.waiting import HANGS_S, wait_until
from web import check, import_queue, imports, live, security, serve
from web.app import MOST_FORM_BYTES, create_app

TOKEN = "correct horse battery"
HERE = "http://localhost"
ADDRESSES = ("/", "/campaigns", "/launch", "/import", "/docs", "/compare", "/scorecard")


@pytest.fixture
def locked(tmp_path: Path) -> FlaskClient:
    return create_app(tmp_path / "results", token=TOKEN).test_client()


def csrf(client: FlaskClient, path: str = "/") -> str:
    result = re.search(r'name="csrf" content="([^"]+)"', client.get(path).text)
    assert result is not None
    return result[1]


def test_nothing_comes_from_elsewhere_or_inline(client: FlaskClient, simulated: Simulated) -> None:
    for path in (*ADDRESSES, simulated.address, f"/runs/{simulated.run_id()}"):
        answer = client.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        # The name of SVG's namespace is not an address.
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        for bad in ("http://", "https://", "style=", "onclick", "javascript:"):
            assert bad not in text, path
        assert "<script>" not in text


def test_another_site_can_neither_embed_nor_open_what_is_served(client: FlaskClient, simulated: Simulated) -> None:
    """Browsers hide from other sites what they load from here, and what a window of it does."""
    run = f"/runs/{simulated.run_id()}"
    for path in ("/", run, f"{run}/files/manifest.json", "/api/campaigns", "/static/site.css", "/nothing"):
        headers = client.get(path).headers
        for name in ("Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy", "Referrer-Policy"):
            assert headers[name] == "same-origin", f"{path}: {name}"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8321", 200), ("127.0.0.1", 200), ("localhost", 200), ("[::1]:8321", 200), ("[::1]", 200),
        ("lab.example:80", 200), ("evil.example:8321", 400), ("localhost.evil.example", 400), ("[::2]", 400),
    ],
)  # fmt: skip
def test_only_names_of_this_machine_and_those_given_are_accepted(tmp_path: Path, host: str, status: int) -> None:
    client = create_app(tmp_path, names=["lab.example"]).test_client()
    assert client.get("/docs", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "headers", [{}, {"X-CSRF-Token": "guess"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
@pytest.mark.parametrize("path", ["/launch", "/api/requests", "/import", "/api/imports", "/leave"])
def test_a_forged_request_is_refused(client: FlaskClient, path: str, headers: dict[str, str]) -> None:
    csrf(client)  # The visitor's browser has its cookie by now.
    answer = client.post(path, data={"text": "name: x"}, headers=headers)
    assert answer.status_code == 403


#: Of requests that no page of this site makes.
FOREIGN = [
    *(
        {"Origin": origin}
        for origin in ("http://evil.example", "https://evil.example", "null", "http://localhost:8321")
    ),
    *({"Sec-Fetch-Site": site, **more} for site in ("cross-site", "same-site") for more in ({}, {"Origin": HERE})),
    {"Origin": "http://localhost.evil.example"},
]


@pytest.mark.parametrize("path", ["/api/check", "/launch", "/import", "/leave"])
@pytest.mark.parametrize("headers", FOREIGN)
def test_no_token_excuses_a_request_from_elsewhere(client: FlaskClient, path: str, headers: dict[str, str]) -> None:
    token = csrf(client)
    own = {"X-CSRF-Token": token} if path.startswith("/api") else {}
    assert client.post(path, data={"csrf": token}, headers={**own, **headers}).status_code == 403


def test_a_request_from_this_site_needs_the_token(client: FlaskClient) -> None:
    right = csrf(client)
    for headers in ({}, {"Origin": HERE}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        for token, status in ((right, 400), ("", 403), ("guess", 403)):
            answer = client.post("/api/check", json={}, headers={**headers, "X-CSRF-Token": token})
            assert answer.status_code == status, (headers, token)


def test_neither_a_form_without_cookies_nor_a_page_elsewhere_passes_as_a_script(tmp_path: Path) -> None:
    site = create_app(tmp_path)
    for path in ("/launch", "/import", "/leave"):
        assert site.test_client().post(path, data={"text": "name: x"}).status_code == 403
    for headers, status in (({}, 200), ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403)):
        assert site.test_client().post("/api/check", json={"text": "x: 1"}, headers=headers).status_code == status


def test_without_the_token_nothing_is_shown(locked: FlaskClient) -> None:
    for path in ADDRESSES:
        answer = locked.get(path)
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith("/enter")
    for path in ("/api/campaigns", "/api/events", "/api/openapi.json"):
        assert locked.get(path).status_code == 401
    assert locked.post("/launch", data={}).status_code == 401
    assert locked.get("/api/health").status_code == 200


def test_the_token_opens_the_door_for_a_browser_and_a_script(locked: FlaskClient) -> None:
    wrong = locked.post("/enter", data={"token": "wrong", "csrf": csrf(locked, "/enter")})
    assert wrong.status_code == 401
    assert "not the token" in wrong.text
    right = locked.post("/enter", data={"token": TOKEN, "to": "/docs", "csrf": csrf(locked, "/enter")})
    assert right.headers["Location"] == "/docs"
    assert locked.get("/docs").status_code == 200
    left = locked.post("/leave", data={"csrf": csrf(locked)})
    assert (left.status_code, left.headers["Location"]) == (302, "/enter")
    assert locked.get("/docs").status_code == 302
    script = locked.application.test_client()
    assert script.get("/api/campaigns", headers={"Authorization": f"Bearer {TOKEN}"}).json == []
    assert script.get("/api/campaigns", headers={"Authorization": "Bearer no"}).status_code == 401
    body = {"text": "name: x"}
    assert script.post("/api/check", json=body, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\r\nX: y",
    ],
)
def test_entering_leads_nowhere_else(locked: FlaskClient, to: str) -> None:
    answer = locked.post("/enter", data={"token": TOKEN, "to": to, "csrf": csrf(locked, "/enter")})
    assert answer.headers["Location"] == "/"


def test_a_session_is_worth_as_much_as_the_token_it_was_given_for(tmp_path: Path) -> None:
    def visit(token: str, cookie: str = "") -> tuple[FlaskClient, int]:
        client = create_app(tmp_path, token=token).test_client()
        name = client.application.config["SESSION_COOKIE_NAME"]
        if cookie:
            client.set_cookie(name, cookie)
        return client, client.get("/docs").status_code

    def cookie(client: FlaskClient) -> str:
        result = client.get_cookie(client.application.config["SESSION_COOKIE_NAME"])
        assert result is not None
        return result.value

    unlocked, _ = visit("")
    unlocked.post("/enter", data={"csrf": csrf(unlocked, "/enter")})
    assert visit(TOKEN, cookie(unlocked))[1] == 302
    entered, _ = visit(TOKEN)
    entered.post("/enter", data={"token": TOKEN, "csrf": csrf(entered, "/enter")})
    assert visit(TOKEN, cookie(entered))[1] == 200
    assert visit(TOKEN + " changed", cookie(entered))[1] == 302


def test_a_page_that_asks_for_the_token_is_shown_after_it_and_a_site_without_one_goes_on(tmp_path: Path) -> None:
    client = create_app(tmp_path, token=TOKEN).test_client()
    assert client.get("/compare?a=1&b=2").headers["Location"] == "/enter?to=/compare?a%3D1%26b%3D2"
    form = client.get("/enter?to=/docs")
    assert (form.status_code, 'value="/docs"' in form.text, "not the token" in form.text) == (200, True, False)
    free = create_app(tmp_path).test_client()
    answer = free.post("/enter", data={"to": "/docs", "csrf": csrf(free)})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/docs")


def test_two_sites_of_one_host_have_cookies_of_their_own(tmp_path: Path) -> None:
    names = {create_app(tmp_path / name).config["SESSION_COOKIE_NAME"] for name in "ab"}
    assert len(names) == 2


def test_what_is_no_upload_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = create_app(tmp_path).test_client()
    answer = script.post("/api/check", json={"text": "x" * (3 << 20)})
    assert answer.status_code == 413
    assert answer.json == {"error": "A request here has at most 2 MiB."}
    # Before a form is looked for in it. What is not too large is read, and lacks the token against forgery.
    monkeypatch.setattr(import_queue, "MOST_BODY", 3 << 20)
    assert script.post("/import", data={"csrf": "x" * (4 << 20)}).status_code == 413
    assert script.post("/import", data={"csrf": "x"}).status_code == 403
    for more_bytes, status in ((0, 403), (1, 413)):
        form = "csrf=".ljust(MOST_FORM_BYTES + more_bytes, "x")
        answer = script.post("/launch", data=form, content_type="application/x-www-form-urlencoded")
        assert answer.status_code == status


def test_uploads_wait_for_each_other_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(tmp_path / "results")
    client = app.test_client()
    go_on = threading.Event()

    def read(*_: Any) -> list[str]:
        assert go_on.wait(HANGS_S)
        raise import_queue.ImportFailed("no")

    monkeypatch.setattr(import_queue, "_read", read)
    taken = [upload(client, (b"x", "a.pcap")).status_code for _ in range(import_queue.MOST_WAITING + 1)]
    assert taken == [202] * import_queue.MOST_WAITING + [503]
    # Another site on the same folder sweeps what nobody holds, and nothing else.
    left = ScratchFolder(tmp_path / "results/uploads")
    (left.path / "0.pcap").write_bytes(b"x")
    os.close(left._lock)
    left._lock = -1
    create_app(tmp_path / "results")
    assert not left.path.exists()
    assert len(list((tmp_path / "results/uploads").iterdir())) == import_queue.MOST_WAITING
    go_on.set()
    wait_until(lambda: all(entry["state"] == "failed" for entry in client.get("/api/imports").json or []))
    assert upload(client, (b"x", "a.pcap")).status_code == 202


def test_how_far_a_reader_is(tmp_path: Path) -> None:
    assert import_queue._progress(tmp_path, 7) == ("looking at the captures", 0)
    folder = tmp_path / "abc-0-7"
    (folder / "captures").mkdir(parents=True)
    (folder / "captures/a.pcap").write_bytes(b"x" * 10)
    assert import_queue._progress(tmp_path, 7) == ("keeping the captures", 10)
    (folder / "segments.parquet").write_bytes(b"x" * 20)
    assert import_queue._progress(tmp_path, 7) == ("classifying segments", 20)
    (folder / "summary.json").write_bytes(b"{}")
    assert import_queue._progress(tmp_path, 7) == ("measuring", 22)
    entry = import_queue.Import("i", ["a"], 10, state="reading", reader=7, reader_started=time.time() - 3)
    told = entry.as_json(tmp_path)
    assert (told["phase"], told["written_bytes"]) == ("measuring", 22)
    assert told["elapsed_s"] >= 3


def test_guessing_is_refused_and_keeps_nobody_out(locked: FlaskClient) -> None:
    token = csrf(locked, "/enter")
    codes = [
        locked.post("/enter", data={"token": f"{n}", "csrf": token}).status_code for n in range(security.GUESSES + 2)
    ]
    assert codes[0] == 401
    assert codes[-1] == 429
    assert locked.post("/enter", data={"token": TOKEN, "csrf": token}).status_code == 302


def test_wrong_tokens_are_counted_over_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(security, "time", SimpleNamespace(monotonic=lambda: now_s))
    auth = security.TokenAuth(TOKEN, security.EndedSessions(tmp_path / "ended"))
    for _ in range(security.GUESSES):
        assert not auth.opens("wrong")
    now_s = 1059.9
    with pytest.raises(TooManyRequests):
        auth.opens("wrong")
    now_s = 1120.0
    assert not auth.opens("wrong")


def test_a_cookie_that_was_copied_opens_nothing_after_its_visitor_left(locked: FlaskClient, tmp_path: Path) -> None:
    locked.post("/enter", data={"token": TOKEN, "csrf": csrf(locked, "/enter")})
    name = locked.application.config["SESSION_COOKIE_NAME"]
    kept = locked.get_cookie(name)
    assert kept is not None
    assert locked.get("/campaigns").status_code == 200
    other = locked.application.test_client()
    other.post("/enter", data={"token": TOKEN, "csrf": csrf(other, "/enter")})
    locked.post("/leave", data={"csrf": csrf(locked)})
    locked.set_cookie(name, kept.value)
    assert locked.get("/campaigns").status_code == 302
    assert other.get("/campaigns").status_code == 200, "somebody else's session"
    again = create_app(locked.application.config["RESULTS"], token=TOKEN).test_client()
    again.set_cookie(name, kept.value)
    assert again.get("/campaigns").status_code == 302, "the site was started again"


def test_sessions_that_ended_long_ago_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(security, "time", SimpleNamespace(time=lambda: now_s))
    ended = security.EndedSessions(tmp_path / "ended")
    assert "old" not in ended
    ended.add("old")
    now_s += security.SESSION_S + 1
    ended.add("new")
    assert [name in ended for name in ("old", "new", "other")] == [False, True, False]


def test_a_session_lasts_30_days(locked: FlaskClient) -> None:
    assert locked.application.permanent_session_lifetime == timedelta(days=30)
    shown = locked.get("/enter")
    entered = locked.post("/enter", data={"token": TOKEN, "csrf": csrf(locked, "/enter")})
    for answer in (shown, entered):
        assert "Expires=" in answer.headers["Set-Cookie"]


def test_a_visitor_stays_signed_in_when_the_site_is_started_again_or_upgraded(tmp_path: Path) -> None:
    """The cookie is found under the name that its key has always given it."""
    (tmp_path / "site.key").write_bytes(bytes(32))
    first = create_app(tmp_path, token=TOKEN).test_client()
    first.post("/enter", data={"token": TOKEN, "csrf": csrf(first, "/enter")})
    name = "backchannel-66687aad"
    cookie = first.get_cookie(name)
    assert cookie is not None
    again = create_app(tmp_path, token=TOKEN).test_client()
    assert again.get("/docs").status_code == 302
    again.set_cookie(name, cookie.value)
    assert again.get("/docs").status_code == 200


def test_the_cookie_is_for_this_site_alone(locked: FlaskClient) -> None:
    answer = locked.post("/enter", data={"token": TOKEN, "csrf": csrf(locked, "/enter")})
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    key = locked.application.config["RESULTS"] / "site.key"
    assert key.stat().st_mode & 0o077 == 0


def test_it_refuses_to_be_reached_by_others_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKCHANNEL_TOKEN", raising=False)
    for words in (("--host", "0.0.0.0"), ("--host", "::"), ("--name", "lab.example"), ("--host", "192.0.2.1")):
        done = backchannel("serve", "--results", tmp_path / "results", "--port", "0", *words, status=2)
        assert "needs a" in done.stderr
        assert "token" in done.stderr
    short = tmp_path / "token"
    short.write_text("short\n")
    with pytest.raises(TestbedError, match="at least 16"):
        serve.read_token(short)
    monkeypatch.setenv("BACKCHANNEL_TOKEN", "also short")
    with pytest.raises(TestbedError, match="at least 16"):
        serve.read_token(None)


@pytest.mark.parametrize(
    ("host", "names", "shown"),
    [
        ("0.0.0.0", [], "localhost"),
        ("::", ["lab.example", "other.example"], "lab.example"),
        ("192.0.2.1", ["lab.example"], "192.0.2.1"),
        ("2001:db8::1", [], "[2001:db8::1]"),
    ],
)
def test_the_printed_address_is_one_that_the_site_accepts(
    tmp_path: Path, host: str, names: list[str], shown: str
) -> None:
    printed, accepted = serve.shown_and_accepted(host, names)
    assert printed == shown
    client = create_app(tmp_path / "results", names=accepted).test_client()
    assert client.get("/docs", headers={"Host": f"{printed}:8321"}).status_code == 200


def test_what_is_local() -> None:
    hosts = ("127.0.0.1", "::1", "127.0.0.2", "localhost", "0.0.0.0", "lab.example")
    assert [security.is_local(host) for host in hosts] == [True, True, True, True, False, False]


def test_it_ends_at_once_whoever_looks(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "experiments", "serve", "--results", str(tmp_path / "results"), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout is not None
    address = started.stdout.readline().split()[0]
    streams = [urllib.request.urlopen(f"{address}api/events", timeout=HANGS_S) for _ in range(live.STREAMS)]
    # Everybody has a first event; one more is told once and sent away.
    for stream in streams:
        assert stream.readline().startswith(b"retry")
    with urllib.request.urlopen(f"{address}api/events", timeout=HANGS_S) as late:
        assert late.read().count(b"event: state") == 1
    with urllib.request.urlopen(address, timeout=HANGS_S) as page:
        assert page.status == 200
    started.send_signal(signal.SIGTERM)
    _, trouble = started.communicate(timeout=HANGS_S)
    assert started.returncode == 0
    assert "still running" not in trouble
    for stream in streams:
        stream.close()


def upload(client: FlaskClient, *files: tuple[bytes, str]) -> Any:
    data = {"csrf": csrf(client), "capture": [(io.BytesIO(body), name) for body, name in files]}
    return client.post("/api/imports", data=data)


def uploaded(client: FlaskClient, data: bytes, name: str) -> Any:
    """The state of an upload once it is read."""
    address = f"/api/imports/{upload(client, (data, name)).json['id']}"
    told: Any = {}

    def has_ended() -> bool:
        told.update(client.get(address).json)
        return told["state"] not in ("waiting", "reading")

    wait_until(has_ended, "the reader", HANGS_S)
    return told


def test_uploads_have_limits(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert upload(client).status_code == 400
    assert upload(client, *[(b"x", f"{n}.pcap") for n in range(import_queue.MOST_FILES + 1)]).status_code == 400
    monkeypatch.setattr(imports, "MOST_BYTES", 1000)
    assert upload(client, (b"x" * 2000, "a.pcap")).status_code == 413


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("LIMIT_S", 1.0, "takes longer than 1 s; ./backchannel import --time-limit raises"),
        ("LIMIT_MEMORY_GB", 0.3, "needs more than 0.3 GB of memory; ./backchannel import --memory-limit raises"),
    ],
)
def test_a_hostile_capture_is_read_in_a_bounded_process(
    limit: str, value: float, said: str, simulated: Simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = next((simulated.results / "runs").rglob("client-eth0.pcap.gz"))
    with gzip.open(packed) as opened:
        header, packets = opened.read(24), opened.read()
    # Millions of packets: no machine reads them within a second.
    again = gzip.compress(packets * (1 + (4 << 20) // len(packets)), 1)
    endless = gzip.compress(header) + again * 100 if limit == "LIMIT_S" else b""
    app = create_app(tmp_path / "results")
    client = app.test_client()
    monkeypatch.setattr(import_queue, limit, value)
    # The reader reports its limit itself, however long it takes to start.
    monkeypatch.setattr(import_queue, "GRACE_S", HANGS_S)
    told = uploaded(client, endless or packed.read_bytes(), "strange.pcap.gz")
    assert told["state"] == "failed"
    assert re.search(said, told["said"]), told["said"]
    # A sentence for people, which tells nothing of this machine.
    assert len(told["said"]) > 20
    assert str(tmp_path) not in told["said"]
    assert "Traceback" not in told["said"]
    assert list((tmp_path / "results/uploads").iterdir()) == []
    assert list((tmp_path / "results/incoming").iterdir()) == []
    assert app.extensions["store"].run_ids("") == []


def test_an_uploads_name_is_only_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = create_app(tmp_path / "results").test_client()
    seen: list[list[Path]] = []
    looked = threading.Event()

    def read(results: str, files: list[Path], entry: import_queue.Import) -> list[str]:
        seen.append(files)
        assert looked.wait(HANGS_S)
        raise import_queue.ImportFailed(f"{entry.names[0]}: no")

    monkeypatch.setattr(import_queue, "_read", read)
    answer = upload(client, (b"x", "../../../etc/cron.d/evil<b>.pcap.gz"), (b"y", "--results"))
    assert answer.json["names"] == ["......etccron.devil<b>.pcap.gz", "results"]
    for path in (tmp_path / "results").rglob("*evil*"):
        raise AssertionError(path)
    looked.set()
    page = client.get(f"/import/{answer.json['id']}").text
    assert "<b>.pcap" not in page
    address = f"/api/imports/{answer.json['id']}"
    wait_until(lambda: client.get(address).json["state"] == "failed", timeout_s=HANGS_S)  # type: ignore[index]
    assert [path.name for path in seen[0]] == ["uploaded-capture-0.pcap.gz", "uploaded-capture-1"]
    assert list((tmp_path / "results/uploads").iterdir()) == []


def test_two_concurrent_starts_share_one_whole_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_waits, second_done = threading.Event(), threading.Event()
    random = secrets.token_bytes

    def slow_for_the_first(size: int) -> bytes:
        if threading.current_thread().name == "first start":
            first_waits.set()
            assert second_done.wait(HANGS_S)
        return random(size)

    monkeypatch.setattr(secrets, "token_bytes", slow_for_the_first)
    keys: list[bytes] = []
    first = threading.Thread(target=lambda: keys.append(security._key(tmp_path)), name="first start")
    first.start()
    assert first_waits.wait(HANGS_S)
    keys.append(security._key(tmp_path))
    second_done.set()
    first.join(HANGS_S)
    assert len(keys[0]) == 32
    assert keys[0] == keys[1] == (tmp_path / "site.key").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["site.key"]
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600


def test_a_visitors_text_is_read_without_network_or_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LIMIT_ELAPSED_S", HANGS_S)
    (tmp_path / "results").mkdir()
    (tmp_path / "secret").write_text("x")
    confined = check.words(str(tmp_path / "results"))[:-2]
    tries = (
        f"open({str(tmp_path / 'secret')!r})", "open('/etc/passwd')", "import socket; socket.socket()",
        f"open({check.__file__!r}, 'a')", "import os; os.kill(os.getppid(), 0)",
    )  # fmt: skip
    for code in tries:
        done = subprocess.run([*confined, "-c", code], capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr, f"{code}: {done.stderr}"
    text = one_line("c", "")
    assert check.check(str(tmp_path / "results"), "c.yaml", text).summary is not None
    # The network of a database's server remains.
    assert check.words("postgresql://nobody@127.0.0.1/none")[0] == sys.executable


def test_a_lower_limit_of_the_sites_own_shell_holds_for_a_check(tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom web import check\n"
        "for kind, limit in ((resource.RLIMIT_AS, 1_500_000_000), (resource.RLIMIT_CPU, 15)):\n"
        "    resource.setrlimit(kind, (limit, limit))\n"
        "print(check.check(sys.argv[1], 'c.yaml', sys.argv[2]).problems)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path), one_line("c", "")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert (done.stdout, done.stderr) == ("[]\n", "")
