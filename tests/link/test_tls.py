"""Links over TLS, with a certificate of our own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from anabranch.errors import SetupError, SiteError
from anabranch.link.gate import Credentials, Gate
from anabranch.link.messages import Follow, Ping, Pong
from anabranch.link.peer import Peer
from tests.link.support import a_gate, an_outlet, numbers, values


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(certificate, key) files for 127.0.0.1, signed by itself."""
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("needs openssl")
    folder: Path = tmp_path_factory.mktemp("tls")
    cert, key = folder / "site.crt", folder / "site.key"
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=site",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(cert),
        ],
        check=True,
        capture_output=True,
    )
    return str(cert), str(key)


def test_following_over_tls_needs_the_authority(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    outlet = an_outlet()
    outlet.attach("c")
    outlet.append([numbers(1, 1000)], 1)
    outlet.end()
    served = Credentials("secret", tls_cert=cert, tls_key=key, tls_ca=cert)
    with a_gate(outlet, credentials=served, actions={Ping: lambda asked: Pong(7)}) as gate:
        peer = Peer("room1", gate.address, Credentials("secret", tls_ca=cert))
        assert peer.send(Ping()) == Pong(7)
        assert values(peer.open(Follow("S", "c", 0, 0))) == list(range(1, 1001))
        for stranger in (
            Credentials("secret"),
            Credentials("secret", tls_cert=cert, tls_key=key),
            Credentials("wrong", tls_ca=cert),
        ):
            with pytest.raises(SiteError):
                Peer("room1", gate.address, stranger).send(Ping(), 3)
            with pytest.raises(SiteError):
                list(Peer("room1", gate.address, stranger).open(Follow("S", "c", 0, 0)))


def test_certificates_that_cannot_be_used_are_said_to_be(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    cert, _ = certificate
    (tmp_path / "text").write_text("no key")
    for key in (str(tmp_path / "text"), cert):
        with pytest.raises(SetupError, match=r"with this certificate\. Check tls_cert and tls_key"):
            Gate("127.0.0.1:0", Credentials("secret", tls_cert=cert, tls_key=key), {})
    with pytest.raises(SetupError, match=r"cannot read .*none: No such file"):
        Peer("room1", "127.0.0.1:1", Credentials("secret", tls_ca=str(tmp_path / "none")))


def test_a_missing_certificate_is_not_taken_for_a_port_in_use(tmp_path: Path) -> None:
    missing = str(tmp_path / "site.crt")
    with pytest.raises(SetupError, match=r"cannot read .*site\.crt: No such file"):
        Gate("127.0.0.1:0", Credentials("secret", tls_cert=missing, tls_key=missing), {})
