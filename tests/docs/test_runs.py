"""What the documentation says that scripts do, they do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.scripts.references import sites_named
from anabranch.errors import ScriptError
from anabranch.language.source import Script
from anabranch.pocket import Pocket
from anabranch.site.programs.submission import classes, submission
from bench.systems.system import System, read_jsonl
from tests.docs.pages import EXAMPLES, blocks

Start = Callable[[list[str], Path], System]


@pytest.fixture
def start(spark: SparkSession) -> Iterator[Start]:
    """Starts a system of the given sites in a folder."""
    running: list[System] = []

    def begin(sites: list[str], folder: Path) -> System:
        running.append(System(ClusterConfig.of_sites(sites), spark, folder))
        return running[-1]

    yield begin
    for system in running:
        system.close()


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """The tutorial's folder, as its first step makes it."""
    folder = tmp_path / "house"
    shutil.copytree(EXAMPLES / "tutorial", folder)
    (folder / "out").mkdir()
    return folder


def shown(page: str, language: str, beginning: str) -> str:
    """The block of `page` that begins so."""
    (text,) = [
        block.text
        for block in blocks(language)
        if block.page == page and block.text.startswith(beginning)
    ]
    return text


def test_the_tutorial(house: Path, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    script = (house / "house.sql").read_text()
    system = start(sites_named(Script(script)), house)
    status = system.run(script)
    expected = shown("tutorial.md", "text", '"label","fahrenheit"')
    assert (house / "out" / "fahrenheit.csv").read_text() == expected
    damp = read_jsonl(house / "out" / "damp.jsonl")
    assert [row["value"] for row in damp] == [20, 21, 22, 23, 24, 45, 46, 47, 48, 49]
    visitors = read_jsonl(house / "out" / "visitors.jsonl")
    assert [row["person"] for row in visitors] == ["ADA", "GRACE", "EDSGER"] * 2
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("hot ")]
    console = shown("tutorial.md", "console", "$ anabranch run house.sql --until-idle\nstream")
    assert printed == [line for line in console.splitlines() if line.startswith("hot  2026")]
    late = [one.late for site in status.sites for one in site.sources]
    assert sum(late) == 1


def test_the_tutorials_explain_and_mistake(house: Path, start: Start) -> None:
    script = (house / "house.sql").read_text()
    system = start(sites_named(Script(script)), house)
    explained = system.execute(f"{script}EXPLAIN damp;")[-1].text
    expected = shown("tutorial.md", "console", "$ (cat house.sql")
    assert explained.splitlines() == expected.splitlines()[3:-1]
    system.drop_all()
    with pytest.raises(ScriptError) as caught:
        system.execute(script.replace("SELECT label", "SELECT lable"))
    lines = shown("tutorial.md", "console", "$ sed 's/SELECT label").splitlines()[2:]
    assert caught.value.line() == lines[0].replace("error: broken.sql", "script.sql")
    assert caught.value.excerpt.splitlines() == [line[2:] for line in lines[1:]]


@pytest.mark.parametrize(
    ("example", "outputs"),
    [
        ("fire.sql", {"fire.jsonl": 60}),
        ("traffic.sql", {"queues.jsonl": 20, "warnings.jsonl": 5}),
        ("collision.sql", {"control.jsonl": 500, "warning.jsonl": 10, "information.jsonl": 250}),
    ],
)
def test_the_examples(example: str, outputs: dict[str, int], tmp_path: Path, start: Start) -> None:
    """Each gives what it promises, at least so many results."""
    script = (EXAMPLES / example).read_text()
    start(sites_named(Script(script)), tmp_path).run(script)
    counts = {name: len(read_jsonl(tmp_path / name)) for name in outputs}
    assert all(counts[name] >= least for name, least in outputs.items()), counts


def test_the_clicks_example(tmp_path: Path, spark: SparkSession) -> None:
    """Counted once more by numpy."""
    spec = spec_from_file_location("clicks", EXAMPLES / "clicks.py")
    assert spec
    assert spec.loader
    clicks = module_from_spec(spec)
    spec.loader.exec_module(clicks)
    with anabranch.Cluster.local("centre", spark=spark) as cluster:
        rows = clicks.count(tmp_path, cluster)
    table = pq.read_table(tmp_path / "clicks.parquet")
    minutes = table["ts"].to_numpy() // 60_000_000
    places = minutes * 200_000 + table["page"].to_numpy()
    counted = zip(*np.unique(places, return_counts=True), strict=True)
    expected = {int(at): int(n) for at, n in counted if n > 1000}
    found = {(row["_ts"] // 60_000_000 - 1) * 200_000 + row["page"]: row["n"] for row in rows}
    assert found == expected != {}


def test_the_language_reference(tmp_path: Path, start: Start) -> None:
    """Its runnable blocks and those of the connectors are one script, from top to bottom."""
    (tmp_path / "readings.csv").write_text(shown("language.md", "csv", "id,room"))
    (tmp_path / "counter.py").write_text(shown("connectors.md", "python", "def events"))
    (tmp_path / "rooms.csv").write_text(shown("language.md", "csv", "number,name"))
    (tmp_path / "stats.py").write_text(shown("language.md", "python", "class Midrange"))
    system = start(["room1", "room2", "centre"], tmp_path)
    pages = ("language.md", "connectors.md")
    runnable = [block for block in blocks("sql") if "run" in block.words]
    answers = []
    for block in sorted(runnable, key=lambda block: pages.index(block.page)):
        answers += system.execute(block.text)
    expected = shown("language.md", "text", "projection value + 1")
    assert expected.rstrip() in [answer.text for answer in answers]
    error = shown("language.md", "text", "error: script.sql")
    with pytest.raises(ScriptError) as caught:
        system.execute("CREATE QUERY q AS SELECT vlaue FROM ticks;")
    assert [f"error: {caught.value.line()}", *caught.value.excerpt.splitlines()] == [
        error.splitlines()[0],
        *(line[2:] for line in error.splitlines()[1:]),
    ]


def test_the_python_page(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its runnable blocks are one program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings.csv").write_text(shown("python.md", "csv", "room,celsius"))
    names: dict[str, object] = {}
    printed = []
    for block in blocks("python"):
        if block.page == "python.md" and "run" in block.words:
            exec(block.text, names)
            printed.append(capsys.readouterr().out)
    assert printed[0] == shown("python.md", "text", "hall")
    assert printed[1] == "60.0\n"
    assert printed[2] == shown("python.md", "text", "where: ")
    assert printed[3] == "[('ada', 5)]\n"
    assert (tmp_path / "fire.jsonl").read_text().count("\n") > 1


def test_the_pocket_of_its_page(tmp_path: Path, start: Start) -> None:
    code = shown("pockets.md", "python", "from anabranch import Pocket")
    system = start(["room1"], tmp_path)
    system.execute(
        "CREATE STREAM readings (room STRING, Temp DOUBLE) FROM rate(tps = 1000, rows = 20,"
        " room = \"concat('room ', value % 2)\", Temp = '45 + value') AT room1;"
        "CREATE STREAM alarm (message STRING);"
        "CREATE QUERY seen AS SELECT message FROM alarm INTO jsonl(path = 'seen.jsonl');"
    )
    (pocket,) = classes(code, "fire_alarm.py", Pocket)
    pocket.output = "alarm"  # there already, so that nothing is missed
    system.coordinator.submit(submission(pocket, code, "fire_alarm.py"), str(tmp_path))
    system.wait()
    messages = [row["message"] for row in read_jsonl(tmp_path / "seen.jsonl")]
    assert messages == ["fire in room 0: 51 °C", "fire in room 1: 52 °C"]


def test_late_tuples_as_the_reference_says(tmp_path: Path, start: Start) -> None:
    (tmp_path / "readings.csv").write_text(shown("language.md", "csv", "id,room"))
    stream = shown("language.md", "sql", "CREATE STREAM readings")
    query = "CREATE QUERY kept AS SELECT id FROM readings INTO jsonl(path = 'kept.jsonl') AT room1;"
    start(["room1"], tmp_path).run(stream + query)
    assert [row["id"] for row in read_jsonl(tmp_path / "kept.jsonl")] == [1, 3]


def test_event_time_in_expressions(tmp_path: Path, start: Start) -> None:
    (tmp_path / "readings.csv").write_text(shown("language.md", "csv", "id,room"))
    stream = shown("language.md", "sql", "CREATE STREAM readings")
    system = start(["room1"], tmp_path)
    status = system.run(stream + shown("language.md", "sql", "CREATE QUERY mornings"))
    assert all(task.state == "done" for site in status.sites for task in site.tasks)


def test_every_type_of_the_reference(tmp_path: Path, start: Start) -> None:
    """NULLs of every type go through a file source, a query and a sink."""
    types = (
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(5, 2)",
        "STRING",
        "BINARY",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
        "ARRAY<INT>",
        "MAP<STRING, INT>",
        "STRUCT<a: INT, b: STRING>",
    )
    columns = ", ".join(f"c{index} {type}" for index, type in enumerate(types))
    (tmp_path / "nulls.jsonl").write_text("{}\n")
    system = start(["room1"], tmp_path)
    system.run(
        f"CREATE STREAM nulls ({columns}) FROM file(path = 'nulls.jsonl') AT room1;"
        "CREATE QUERY same AS SELECT * FROM nulls INTO jsonl(path = 'same.jsonl') AT room1;"
    )
    (row,) = read_jsonl(tmp_path / "same.jsonl")
    assert [row[f"c{index}"] for index in range(len(types))] == [None] * len(types)
