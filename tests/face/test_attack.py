"""A reader's token against every route, on a site with a process of its own that is watched from
outside: each connection, each file that is written, each library and each process of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import create_server

import pytest

from anabranch.face.access import reader_may
from anabranch.face.routes import make_app
from tests.e2e.commands import anabranch, start, wait_until

STRACE = shutil.which("strace")
CLUSTER = """
[site.centre]
isolation = "process"
"""
SCRIPT = """
CREATE STREAM s (value BIGINT) FROM rate(tps = 20) AT centre;
CREATE QUERY q AS SELECT value FROM s WHERE value % 2 = 0 AT centre;
"""
PAGES = (
    "/",
    "/timeline",
    "/sql",
    "/query/q",
    "/login",
    "/api/docs",
    "/api/openapi.json",
    "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not STRACE, reason="watching a process from outside takes strace"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacked")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "script.sql").write_text(SCRIPT)
    process = start(["up", "--cluster", "cluster.toml", "--http", "127.0.0.1:0"], folder)
    log = folder / "log"
    try:
        wait_until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None, "up", 180)
        made = anabranch("sql", "-f", "script.sql", cwd=folder)
        assert made.returncode == 0, made.stderr
        found = re.search(r"http://[^/]+", log.read_text())
        assert found
        yield found[0]
    finally:
        anabranch("down", cwd=folder)
        process.wait(timeout=60)


class Watched:
    """What a process and all that it has started ask of the kernel meanwhile."""

    def __init__(self, pid: int, record: Path) -> None:
        self._record = record
        calls = "trace=connect,execve,openat,open,creat,mkdir,mkdirat,unlink,unlinkat"
        self._strace = subprocess.Popen(
            [str(STRACE), "-f", "-qq", "-s", "200", "-e", calls, "-o", str(record), "-p", str(pid)]
        )

    def __enter__(self) -> Watched:
        wait_until(self._record.exists, "watched", 30)
        return self

    def __exit__(self, *error: object) -> None:
        self._strace.terminate()  # SIGINT may be ignored here
        self._strace.wait(timeout=60)

    def calls(self) -> list[str]:
        return self._record.read_text().splitlines()


def site_of(folder: Path) -> int:
    status = json.loads(anabranch("status", "--json", cwd=folder).stdout)
    found = next(one for one in status["sites"] if "centre" in one.values())
    return int(re.findall(r'"pid": (\d+)', json.dumps(found))[0])


def asked(url: str, method: str, token: str, body: object = None) -> int:
    """The status; of one that goes on, as soon as it has begun."""
    data = None if method == "GET" else json.dumps(body or {}).encode()
    request = urllib.request.Request(url, method=method, data=data)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def hostile(port: int, folder: Path) -> list[str]:
    return [
        f"CREATE QUERY x AS SELECT value FROM s INTO kafka(servers = '127.0.0.1:{port}',"
        f" topic = 't', `plugin.library.paths` = '{folder}/evil.so')",
        f"EXPLAIN CREATE QUERY x AS SELECT value FROM s INTO"
        f" postgres(url = 'postgresql://any@127.0.0.1:{port}/x', table = 't')",
        f"CREATE QUERY x AS SELECT value FROM s INTO jsonl(path = '{folder}/evil.jsonl')",
        f"CREATE STREAM x (a INT) FROM file(path = '{folder}/evil.csv') AT centre",
        "SELECT length(repeat('x', 2147483600)) AS n FROM s",
        "CREATE SECRET x FROM file('/etc/passwd')",
        "DROP QUERY q",
    ]


def test_a_readers_token_causes_nothing_at_a_site(address: str, folder: Path) -> None:
    token = anabranch("token", "--reader", cwd=folder).stdout.strip()
    callers: list[object] = []
    with create_server(("127.0.0.1", 0)) as trap:
        threading.Thread(target=_listen, args=(trap, callers), daemon=True).start()
        port = trap.getsockname()[1]
        with Watched(site_of(folder), folder / "calls") as watched:
            for method, path in _routes():
                where = path.replace("{name}", "centre" if "sites" in path else "q")
                ends = {"/api/events": "?count=1", "/api/tail/q": "?limit=1&timeout_s=5"}
                body = {"text": "EXPLAIN q;", "site": "centre"}
                status = asked(address + where + ends.get(where, ""), method, token, body)
                may = where in ("/health", "/ready") or reader_may(method, where)
                assert (status == 200) == may, (method, where, status)
                assert status in (200, 403, 404, 405), (method, where, status)
            for text in hostile(port, folder):
                for route in ("explain", "statements"):
                    status = asked(f"{address}/api/{route}", "POST", token, {"text": text})
                    assert status == (400 if route == "explain" else 403), text
        assert callers == []
        with Watched(site_of(folder), folder / "control") as control:  # what it would have seen
            operator = anabranch("token", cwd=folder).stdout.strip()
            explained = {"text": hostile(port, folder)[1]}
            asked(f"{address}/api/explain", "POST", operator, explained)
    assert callers
    assert any(f"htons({port})" in one for one in control.calls())
    calls = watched.calls()
    assert [one for one in calls if "execve(" in one] == []
    assert [one for one in calls if "evil" in one or f"htons({port})" in one] == []
    connected = {found for one in calls for found in re.findall(r'inet_addr\("(.*?)"\)', one)}
    assert connected <= {"127.0.0.1"}
    written = [one for one in calls if re.search(r"O_WRONLY|O_RDWR|O_CREAT|mkdir|creat\(", one)]
    own = (f"{folder}/.anabranch", "/dev/null", "/dev/shm", "/tmp/hsperfdata", "anabranch-")
    assert [one for one in written if not any(path in one for path in own)] == []
    assert [one for one in calls if re.search(r'\.so[.\d]*", O_RDONLY', one)] == []
    listed = anabranch("sql", "-e", "SHOW QUERIES; SHOW STREAMS; SHOW SECRETS;", cwd=folder).stdout
    assert "q" in listed
    assert " x " not in listed


def _routes() -> list[tuple[str, str]]:
    paths = make_app(None).openapi()["paths"]  # type: ignore[arg-type]
    found = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    return [*found, *(("GET", page) for page in PAGES)]


def _listen(trap: object, callers: list[object]) -> None:
    with suppress(OSError):
        while True:
            connection, caller = trap.accept()  # type: ignore[attr-defined]
            callers.append(caller)
            connection.close()
