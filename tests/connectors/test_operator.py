"""What statements may not use of a site's machine unless its operator says so."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import create_server, socket

import psycopg
import pytest

from anabranch.config.model import Security
from anabranch.connectors.kafka.client import client_settings
from anabranch.connectors.operator import let_use
from anabranch.connectors.postgres.client import Database
from anabranch.errors import ConfigError


@pytest.fixture
def operator() -> Iterator[Callable[..., None]]:
    yield lambda **said: let_use(Security(**said))
    let_use(Security())


def message(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        client_settings("localhost:1", settings, ["servers", "topic"])
    return raised.value.line()


@pytest.mark.parametrize(
    "name",
    [
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.providers",
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.config",
        "debug",
        "sasl.oauthbearer.assertion.private.key.file",
        "log_level",
        "metadata.broker.list",
    ],
)
def test_settings_of_librdkafka_that_no_statement_chooses(name: str) -> None:
    assert f"kafka() has no option '{name}'" in message({name: "/tmp/any"})


def test_what_is_allowed_is_listed() -> None:
    said = message({"plugin.library.paths": "x"})
    assert "sasl.password" in said
    assert "ssl.ca.pem" in said


def test_files_are_those_of_the_operator(tmp_path: Path, operator: Callable[..., None]) -> None:
    inside, outside = tmp_path / "clients" / "ca.crt", tmp_path / "token"
    inside.parent.mkdir()
    for one in (inside, outside):
        one.touch()
    (inside.parent / "link").symlink_to(outside)
    setting = "ssl.ca.location"
    assert "client_files in [security]" in message({setting: str(inside)})
    operator(client_files=str(inside.parent))
    assert client_settings("h:1", {setting: str(inside)})[setting] == str(inside)
    for path in (outside, inside.parent / "link", inside.parent / ".." / "token"):
        assert "no file outside of" in message({setting: str(path)})
    with pytest.raises(ConfigError, match="no file outside of"):
        Database(f"postgresql://h/d?sslkey={outside}", "postgres")
    Database(f"postgresql://h/d?sslrootcert={inside}", "postgres")


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A server that asks for the password in clear, and what it heard."""
    heard: list[bytes] = []

    def serve(one: socket) -> None:
        with one, suppress(OSError, struct.error):
            while True:
                (length,) = struct.unpack("!i", one.recv(4))
                (code,) = struct.unpack("!i", one.recv(4))
                if code not in (80877103, 80877104):  # neither TLS nor GSS
                    break
                one.sendall(b"N")
            one.recv(length - 8)
            one.sendall(b"R" + struct.pack("!ii", 8, 3))
            heard.append(one.recv(1000))

    with create_server(("127.0.0.1", 0)) as listening:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=listening.accept()[:1]).start()

        threading.Thread(target=listen, daemon=True).start()
        yield listening.getsockname()[1], heard


def test_passwords_of_the_environment_stay(
    listener: tuple[int, list[bytes]],
    operator: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    port, heard = listener
    kept = tmp_path / "pgpass"
    kept.write_text("*:*:*:*:of-the-file")
    kept.chmod(0o600)
    url = f"postgresql://any@127.0.0.1:{port}/x"

    def told(url: str) -> list[bytes]:
        heard.clear()
        with pytest.raises(psycopg.OperationalError):
            Database(url, "postgres").connect()
        return [one for one in heard if one]

    for name, value in (("PGPASSWORD", "of-the-environment"), ("PGPASSFILE", str(kept))):
        monkeypatch.setenv(name, value)
        assert told(url) == []
        operator(environment_passwords=True)
        assert b"of-the-" in told(url)[0]
        operator()
        monkeypatch.delenv(name)
    assert b"its-own" in told(f"postgresql://any:its-own@127.0.0.1:{port}/x")[0]
    with pytest.raises(ConfigError, match="file of the site's machine"):
        Database(f"{url}?passfile={kept}", "postgres")
    with pytest.raises(ConfigError, match="file of the site's machine"):
        Database("service=prod host=127.0.0.1", "postgres")
