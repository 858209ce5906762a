"""The catalog forgets nothing and changes whole."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from anabranch.coordinator.base.catalog import Catalog, Intention
from anabranch.coordinator.service.state import write_endpoint
from anabranch.errors import Damaged, StorageError
from anabranch.link.gate import Credentials
from anabranch.plan.catalog import QueryDef
from anabranch.plan.spec import Call
from tests.plan.samples import FAHRENHEIT, HOT, a_query, a_stream

SENSOR = a_stream("Sensor1")
HOTS = a_query("hot", "Sensor1", HOT, FAHRENHEIT)
HOTTER = a_query("hotter", "hot", HOT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def test_it_survives_reopening(path: Path) -> None:
    catalog = Catalog(path)
    catalog.change(add=[SENSOR, HOTS], drop=[])
    catalog.change(add=[HOTTER], drop=[])
    catalog.remember_site("room1", "127.0.0.1:7101", 12)
    catalog.remember_site("room1", "127.0.0.1:7102", 13)
    catalog.remember("address", "127.0.0.1:7000")
    catalog.close()

    again = Catalog(path)
    assert list(again.definitions().values()) == [SENSOR, HOTS, HOTTER]
    assert again.sites() == {"room1": ("127.0.0.1:7102", 13)}
    assert again.setting("address") == "127.0.0.1:7000"
    assert again.setting("nothing") is None
    again.close()


def test_sinks_of_an_earlier_version_go_where_they_went(path: Path) -> None:
    """It knew by their names which of them every site can write."""

    def written_to(sink: str, name: str) -> QueryDef:
        shared = sink == "kafka"
        query = a_query(name, "Sensor1", HOT, sink=Call(name=sink))
        return query.model_copy(update={"sink_shared": shared})

    there = [written_to("kafka", "a"), written_to("csv", "b"), a_query("c", "Sensor1", HOT)]
    coming = written_to("kafka", "d")
    catalog = Catalog(path)
    catalog.change(add=there, drop=[])
    catalog.intend(Intention(add=(coming,)))
    catalog.close()
    with sqlite3.connect(path) as db:
        for table in ("definition", "intention"):
            for shared in ("true", "false"):
                db.execute(
                    f"UPDATE {table} SET body = replace(body, ?, '')", [f'"sink_shared":{shared},']
                )
    again = Catalog(path)
    assert list(again.definitions().values()) == there
    assert [one.add for one in again.intentions().values()] == [(coming,)]
    again.close()


def test_it_survives_a_crash_after_any_change(path: Path) -> None:
    """Durable when the call returns: another process sees it, whether or not we ever close."""
    first = Catalog(path)
    for names, add in (["Sensor1"], SENSOR), (["Sensor1", "hot"], HOTS):
        first.change(add=[add], drop=[])
        second = Catalog(path)
        assert list(second.definitions()) == names
        second.close()
    first.close()


def test_a_change_happens_whole_or_not_at_all(path: Path) -> None:
    catalog = Catalog(path)
    catalog.change(add=[SENSOR, HOTS], drop=[])
    with pytest.raises(sqlite3.IntegrityError):
        catalog.change(add=[HOTTER, a_stream("SENSOR1")], drop=["hot"])
    assert list(catalog.definitions().values()) == [SENSOR, HOTS]
    catalog.change(add=[HOTTER], drop=["hot"])
    assert list(catalog.definitions()) == ["Sensor1", "hotter"]
    catalog.close()


def test_what_is_made_again_comes_last(path: Path) -> None:
    """So that deploying all of it in order finds every input before its readers."""
    catalog = Catalog(path)
    catalog.change(add=[SENSOR, HOTS, HOTTER], drop=[])
    catalog.change(add=[], drop=["hotter"])
    catalog.change(add=[HOTS], drop=["HOT"])
    catalog.change(add=[HOTTER], drop=[])
    assert list(catalog.definitions()) == ["Sensor1", "hot", "hotter"]
    catalog.close()


def test_many_threads_may_use_it(path: Path) -> None:
    catalog = Catalog(path)

    def work(n: int) -> None:
        for i in range(5):
            catalog.change(add=[a_stream(f"S{n}_{i}")], drop=[])
            catalog.definitions()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(catalog.definitions()) == 20
    catalog.close()


def test_moments_rise_though_the_clock_is_set_back(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog.db")
    moments = [catalog.next_moment(now) for now in (100, 100, 50)]
    catalog.close()
    again = Catalog(tmp_path / "catalog.db")
    assert [*moments, again.next_moment(10), again.next_moment(1000)] == [100, 101, 102, 103, 1000]
    again.close()


def killed_after(changes: int, folder: Path) -> Path:
    """What a coordinator leaves that was killed after so many changes."""
    (folder / "ran").mkdir(parents=True)
    catalog = Catalog(folder / "ran" / "catalog.db")
    for number in range(changes):
        catalog.change(add=[a_stream(f"S{number}")], drop=[])
    shutil.copytree(folder / "ran", folder / "left")
    catalog.close()
    return folder / "left" / "catalog.db"


@pytest.mark.parametrize(("name", "size"), [("db", 0), ("db-wal", 0), ("db-wal", 0.5)])
def test_a_catalog_that_has_lost_its_end_is_not_gone_on_with(
    tmp_path: Path, name: str, size: float
) -> None:
    """SQLite finds nothing wrong with it, and would begin with fewer definitions, or none."""
    path = killed_after(50, tmp_path)
    file = path.with_suffix(f".{name}")
    file.write_bytes(file.read_bytes()[: int(size * file.stat().st_size)])
    with pytest.raises(
        Damaged, match=r"knows of \d+ changes, and there were 50: it has lost"
    ) as found:
        Catalog(path)
    assert "remove catalog.db.changes, start with what is left" in found.value.remedy
    (path.parent / "catalog.db.changes").unlink()
    left = Catalog(path)
    assert len(left.definitions()) < 50
    left.change(add=[a_stream("new")], drop=[])
    left.close()
    Catalog(path).close()


def test_what_is_no_catalog_any_more_is_said(tmp_path: Path) -> None:
    path = killed_after(1, tmp_path)
    path.with_suffix(".db-wal").unlink()
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(Damaged, match="the catalog is damaged: file is not a database"):
        Catalog(path)


def test_a_disk_that_is_full_when_the_coordinator_starts_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "coordinator.json.new").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"coordinator.json: No space left on device. Free some"):
        write_endpoint(tmp_path, "127.0.0.1:1", Credentials("secret"))
