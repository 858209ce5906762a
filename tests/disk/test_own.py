"""State folders and tokens are their owner's."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli.sites.site import _check_guarded
from anabranch.config.address import read_address
from anabranch.config.cluster import ClusterConfig
from anabranch.config.model import Security
from anabranch.coordinator.service.state import exposed
from anabranch.disk.real import own_folder
from anabranch.errors import ConfigError
from anabranch.link.gate import Credentials


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_and_those_made_above_it_are_closed(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    state = there / ".anabranch" / "sites" / "room"
    own_folder(state)
    assert [mode(one) for one in (state, state.parent, state.parent.parent)] == [0o700] * 3
    assert mode(there) == 0o755


def test_one_that_stood_open_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    own_folder(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError):
        own_folder(file)


def test_a_token_that_all_can_read_is_told_of(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("right")
    token.chmod(0o644)
    assert "chmod 600" in exposed(token)
    token.chmod(0o640)
    assert exposed(token) == ""
    assert exposed(None) == ""


@pytest.mark.parametrize("option", ["--listen", "--address"])
def test_a_site_that_is_started_by_hand_asks_for_tls_as_up_does(option: str) -> None:
    outside, tls = read_address("10.0.0.5:7101"), Credentials("right", "site.crt", "site.key")
    for credentials, missing in ((Credentials(""), "no token"), (Credentials("right"), "no TLS")):
        with pytest.raises(ConfigError, match=missing):
            _check_guarded(outside, credentials, ClusterConfig(), option)
    _check_guarded(outside, tls, ClusterConfig(), option)
    trusted = ClusterConfig(security=Security(plaintext=True))
    _check_guarded(outside, Credentials("right"), trusted, option)
    _check_guarded(read_address("127.0.0.1:7101"), Credentials(""), ClusterConfig(), option)
    _check_guarded(None, Credentials(""), ClusterConfig(), option)
