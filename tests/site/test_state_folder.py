"""A site's folder has one owner, and is known again."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anabranch.cli.sites.site import own_state
from anabranch.disk.real import RealFolder
from anabranch.errors import StorageError
from anabranch.site.member import StateFolder

_HOLD = """
import sys, time
from pathlib import Path
from anabranch.site.member import StateFolder
held = StateFolder.hold(Path(sys.argv[1]), "centre")
print("held", flush=True)
time.sleep(60)
"""


def test_it_is_known_again(tmp_path: Path) -> None:
    one = StateFolder.hold(tmp_path / "a", "centre")
    other = StateFolder.hold(tmp_path / "b", "centre")
    assert one.identity != other.identity
    for held in (one, other):
        held.close()
    again = StateFolder.hold(tmp_path / "a", "centre")
    assert again.identity == one.identity
    again.close()


def test_a_person_writes_it_anew_where_it_was_lost(tmp_path: Path) -> None:
    held = StateFolder.hold(tmp_path, "centre")
    held.close()
    (tmp_path / "identity").write_text("garbage")
    other = StateFolder.hold(tmp_path, "centre")
    other.close()
    assert other.identity != held.identity
    (tmp_path / "identity").write_text(f"{held.identity}\n")
    again = StateFolder.hold(tmp_path, "centre")
    again.close()
    assert again.identity == held.identity


def test_a_second_process_says_who_holds_it_or_waits_for_its_end(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        complaint = f"{tmp_path}: the folder is held by site centre, process {other.pid}. End that"
        with pytest.raises(StorageError, match=complaint):
            StateFolder.hold(tmp_path, "centre", patience_s=0.1)
        threading.Timer(0.3, other.kill).start()
        StateFolder.hold(tmp_path, "centre", patience_s=30).close()


def test_the_default_does_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert own_state("centre").is_absolute()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert own_state("a/b") == tmp_path / "s" / "anabranch" / "sites" / "a%2Fb"


def test_an_identity_outlives_a_torn_write(tmp_path: Path) -> None:
    """The file is there whole or not at all."""
    held = StateFolder.hold(tmp_path, "centre")
    held.close()
    assert set(RealFolder(tmp_path).names()) == {"identity", "lock"}
