"""One script, the same output, however the sites are run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.e2e.commands import anabranch

SCRIPT = """
CREATE STREAM readings (id BIGINT, temperature DOUBLE, label STRING) TIMESTAMP ts
  FROM file(path = '{folder}/readings.parquet') AT a;
CREATE STREAM ticks (n BIGINT, half DOUBLE)
  FROM rate(tps = 2000, rows = 3000, start = 0, n = 'value', half = 'value / 2') AT b;
CREATE QUERY warm AS SELECT *, temperature * 1.8 + 32 AS fahrenheit FROM readings
  WHERE temperature > 20 AT b;
CREATE QUERY shown AS SELECT id, upper(label) AS label, fahrenheit FROM warm
  WHERE label LIKE '%7%' INTO jsonl(path = '{out}/shown.jsonl') AT c;
CREATE QUERY table_ AS SELECT id, fahrenheit, label FROM warm
  INTO csv(path = '{out}/table.csv') AT b;
CREATE QUERY even AS SELECT n, half FROM ticks WHERE n % 2 = 0
  INTO jsonl(path = '{out}/even.jsonl') AT c;
"""
THREAD = '[defaults]\nisolation = "thread"\n[site.a]\n[site.b]\n[site.c]\n'
CLUSTERS = {
    "thread": THREAD,
    "process": THREAD.replace("thread", "process")
    + '[[link]]\nfrom = "a"\nto = "b"\ndelay = "20ms"\njitter = "10ms"\n',
    "local-cluster": THREAD.replace("[site.a]", 'master = "local-cluster[1,1,1024]"\n[site.a]', 1),
}
ROWS = 40_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("isolation")
    rng = np.random.default_rng(3)
    readings = pa.table(
        {
            "id": np.arange(ROWS),
            "temperature": rng.normal(22, 4, ROWS),
            "label": [f"r{n % 100}" for n in range(ROWS)],
            "ts": np.arange(ROWS) * 1000,
        }
    )
    pq.write_table(readings, folder / "readings.parquet", row_group_size=7_000)
    return folder


@pytest.fixture(scope="module")
def outputs(folder: Path) -> dict[str, dict[str, bytes]]:
    """What each kind of cluster wrote, by file name."""
    return {kind: run_on(kind, folder) for kind in CLUSTERS}


def run_on(kind: str, folder: Path) -> dict[str, bytes]:
    out = folder / kind
    out.mkdir()
    (folder / f"{kind}.toml").write_text(CLUSTERS[kind])
    (folder / f"{kind}.sql").write_text(SCRIPT.format(folder=folder, out=out))
    done = anabranch("run", f"{kind}.sql", "--cluster", f"{kind}.toml", "--until-idle", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.slow
def test_every_isolation_writes_the_same_files(outputs: dict[str, dict[str, bytes]]) -> None:
    assert set(outputs["thread"]) == {"shown.jsonl", "table.csv", "even.jsonl"}
    for kind in ("process", "local-cluster"):
        for name, expected in outputs["thread"].items():
            assert outputs[kind][name] == expected, f"{name} differs with {kind}"


@pytest.mark.slow
def test_the_files_hold_what_the_queries_say(
    outputs: dict[str, dict[str, bytes]], folder: Path
) -> None:
    warm = pq.read_table(folder / "readings.parquet").filter(pc.field("temperature") > 20)
    lines = outputs["thread"]["table.csv"].decode().splitlines()
    assert [int(line.split(",")[0]) for line in lines[1:]] == warm["id"].to_pylist()
    assert len(outputs["thread"]["even.jsonl"].splitlines()) == 1500
    assert not list((folder / "tmp").glob("anabranch*"))


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    """What console sinks print goes elsewhere, that of sites with a process of their own too."""
    (tmp_path / "s.sql").write_text("""
        CREATE STREAM ticks (value BIGINT) FROM rate(tps = 100, rows = 3) AT here;
        CREATE QUERY near AS SELECT value FROM ticks INTO console() AT here;
        CREATE QUERY far AS SELECT value FROM ticks INTO console() AT there;
    """)
    (tmp_path / "c.toml").write_text('[site.here]\n[site.there]\nisolation = "process"\n')
    options = ("--cluster", "c.toml", "--until-idle", "--json")
    done = anabranch("run", "s.sql", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["sites"]) == 2
    for query in ("near", "far"):
        assert sum(line.startswith(query) for line in done.stderr.splitlines()) == 3
