"""A real folder: whole writes or none, one owner, errors that say what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.disk import real
from anabranch.disk.real import RealFolder
from anabranch.errors import StorageError


def test_what_is_appended_is_there_again(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path / "a" / "b")
    assert folder.read("f") is None
    file = folder.append_to("f", 0)
    file.append(b"one")
    file.append(b"two")
    file.sync()
    file.close()
    file.close()
    assert folder.read("f") == b"onetwo"
    file = folder.append_to("f", 3)
    file.append(b"!")
    file.close()
    assert folder.read("f") == b"one!"
    assert folder.names() == ["f"]
    folder.remove("f")
    folder.remove("f")
    assert folder.names() == []


def test_it_is_its_owners_only(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path / "a")
    folder.replace("f", b"")
    assert folder.path.stat().st_mode & 0o77 == 0
    assert (folder.path / "f").stat().st_mode & 0o77 == 0


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bytes of the record still fit: they are taken away again."""
    folder = RealFolder(tmp_path)
    file = folder.append_to("f", 0)
    file.append(b"whole")
    write = os.pwrite
    room = [3]

    def full(fd: int, data: memoryview, at: int) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = write(fd, data[: room[0]], at)
        room[0] -= done
        return done

    monkeypatch.setattr(real.os, "pwrite", full)
    with pytest.raises(StorageError, match=r"No space left on device\. Free some space"):
        file.append(b"lost and gone")
    assert folder.read("f") == b"whole"
    room[0] = 100
    file.append(b"again")
    file.close()
    assert folder.read("f") == b"wholeagain"


def test_what_could_not_be_taken_away_is_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RealFolder(tmp_path)
    file = folder.append_to("f", 0)
    file.append(b"whole")

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(real.os, "fsync", broken)
        patch.setattr(real.os, "ftruncate", broken)
        patch.setattr(real.os, "pwrite", lambda fd, data, at: os.write(fd, data[:0]) or broken())
        with pytest.raises(StorageError, match="Input/output error"):
            file.append(b"lost")
        with pytest.raises(StorageError, match="Input/output error"):
            file.append(b"lost")
        with pytest.raises(StorageError, match="Input/output error"):
            folder.replace("f", b"new")
    file.append(b"!")
    file.close()
    assert folder.read("f") == b"whole!"


_HOLD = """
import sys, time
from pathlib import Path
from anabranch.disk.real import RealFolder
lock = RealFolder(Path(sys.argv[1])).lock("lock", "process 4711")
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_is_held_until_its_process_ends(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match="the folder is held by process 4711"):
            RealFolder(tmp_path).lock("lock", "me")
        other.send_signal(signal.SIGKILL)
    held = RealFolder(tmp_path).lock("lock", "me, long after")
    with pytest.raises(StorageError, match="held by me, long after"):
        RealFolder(tmp_path).lock("lock", "you")
    held.close()
    RealFolder(tmp_path).lock("lock", "you").close()
