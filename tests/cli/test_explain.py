"""`anabranch explain`: what a script would run, as text and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.cli.queries import run
from anabranch.config.cluster import ClusterConfig
from bench.systems.system import System
from tests.cli.conftest import Ended

Run = Callable[..., Ended]
SCRIPT = """
CREATE STREAM s (a INT, b STRING) FROM rate(tps = 10, a = 'CAST(value AS INT)', b = "'<&>'") AT room1;
CREATE QUERY big AS SELECT a FROM s WHERE a > 5 AND b <> '<' AT centre;
CREATE QUERY counts AS SELECT count(*) AS n FROM big[1s] INTO console() AT centre;
"""  # noqa: E501


class Here:
    """In place of a run of its own: the test's Spark."""

    def __init__(self, system: System) -> None:
        self.coordinator = system.coordinator

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    system = System(ClusterConfig.of_sites(["room1", "centre"]), spark, tmp_path)
    monkeypatch.setattr(run, "Run", lambda cluster, progress: Here(system))
    (tmp_path / "script.sql").write_text(SCRIPT)
    yield tmp_path / "script.sql"
    assert system.coordinator.status().streams == ()
    system.close()


def test_every_query_before_and_after_rewriting(anabranch: Run, script: Path) -> None:
    ended = anabranch("explain", str(script))
    assert ended.code == 0
    assert ended.out.startswith("query big\n─────────\nAs written:\n")
    assert "As run:" in ended.out
    assert "\nquery counts\n────────────\n" in ended.out
    assert "sink console()" in ended.out


def test_one_query_and_its_picture(anabranch: Run, script: Path) -> None:
    picture = script.parent / "big.svg"
    ended = anabranch("explain", str(script), "BIG", "--svg", str(picture))
    assert ended.code == 0
    assert "counts" not in ended.out
    texts = [one.text for one in ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"query big, as written", "query big, as run", "room1", "centre"} <= set(texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small",), "it creates no query small. It has big, counts."),
        (("big", "--svg", "/nowhere/x.svg"), "/nowhere/x.svg: cannot write it: No such file"),
    ],
)
def test_what_cannot_be_explained(
    anabranch: Run, script: Path, arguments: tuple[str], message: str
) -> None:
    ended = anabranch("explain", str(script), *arguments)
    assert ended.code == 1
    assert message in ended.err
