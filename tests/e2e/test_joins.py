"""The placement paper's query as printed; tables that change; parts that queries share."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from bench.systems.postgres import Postgres
from bench.systems.system import System, read_jsonl
from tests.e2e.commands import wait_until
from tests.window.naive import Range, Tuple, evaluate

FIGURE_5 = """MASTER	Sensor1
SELECT	Sensor1.Temp, Sensor2.Temp, Sensor3.Temp
FROM	Sensor1[1s], Sensor2[1s], Sensor3[1s]
WHERE	Sensor1.Temp > 50 AND Sensor2.Temp > 50 AND Sensor3.Temp > 50"""
SITES = {"Sensor1": "room1", "Sensor2": "room2", "Sensor3": "centre"}


def write_sensors(folder: Path, seed: int) -> tuple[str, list[list[Tuple]]]:
    """Statements for three sensors with a file each, and what is in them."""
    rng, script, sensors = random.Random(seed), "", []
    for name, site in SITES.items():
        ts, rows = 0, []
        for position in range(1, 201):
            ts += rng.randrange(400_000)
            rows.append(Tuple(position, ts, {"Temp": round(rng.uniform(20, 70), 2)}))
        text = "".join(f"{row.ts},{row.values['Temp']}\n" for row in rows)
        (folder / f"{name}.csv").write_text(f"ts,Temp\n{text}")
        script += (
            f"CREATE STREAM {name} (Temp DOUBLE) TIMESTAMP ts"
            f" FROM file(path = '{name}.csv', speed = 'max') AT {site};\n"
        )
        sensors.append(rows)
    return script, sensors


def expected_fire(sensors: list[list[Tuple]]) -> list[tuple[Any, ...]]:
    window = Range(width_us=1_000_000)
    hot = evaluate(
        sensors, [window] * 3, [0], lambda values: all(one["Temp"] > 50 for one in values)
    )
    return [
        (
            one.ts,
            *(rows[p - 1].values["Temp"] for rows, p in zip(sensors, one.positions, strict=True)),
        )
        for one in hot
    ]


def test_figure_5_as_printed(system: System) -> None:
    script, sensors = write_sensors(system.folder, 1)
    system.run(f"{script}CREATE QUERY fire AS {FIGURE_5}\nINTO jsonl(path = 'fire.jsonl');")
    names = ("_ts", "Sensor1_Temp", "Sensor2_Temp", "Sensor3_Temp")
    found = [tuple(row[name] for name in names) for row in read_jsonl(system.folder / "fire.jsonl")]
    assert len(found) > 100
    assert found == expected_fire(sensors)


def test_figure_5_by_itself(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A query without a name gets one, and is shown on the terminal."""
    script, sensors = write_sensors(system.folder, 2)
    answers = system.execute(f"{script}{FIGURE_5}")
    assert answers[-1].text == "query query_1 created at room1"
    system.wait()
    lines = [line for line in capsys.readouterr().out.splitlines() if "query_1" in line]
    assert len(lines) == len(expected_fire(sensors))


def test_a_stream_for_a_pocket(system: System) -> None:
    (answer,) = system.execute("CREATE STREAM alarm (message string)")
    assert answer.text.startswith("stream alarm created at ")


def test_a_table_that_changes(system: System, postgres: Postgres) -> None:
    """Every tuple sees one version; what stays is not put out again."""
    postgres.execute("CREATE TABLE rooms (id INT, name TEXT)")
    postgres.execute("INSERT INTO rooms VALUES (0, 'hall'), (1, 'bath')")
    system.execute(
        f"""
        CREATE STREAM ticks (value BIGINT) FROM rate(tps = 50) AT room1;
        CREATE TABLE rooms (id INT, name STRING)
          FROM postgres(url = '{postgres.url}', table = 'rooms', notify = 'rooms') AT centre;
        CREATE QUERY named AS MASTER ticks SELECT value, name FROM ticks[1 ROWS], rooms
          WHERE value % 2 = id INTO jsonl(path = 'named.jsonl') AT room2;
        """
    )
    path = system.folder / "named.jsonl"

    def names() -> list[str]:
        return [row["name"] for row in read_jsonl(path)] if path.exists() else []

    wait_until(lambda: len(names()) > 40, "named tuples")
    postgres.execute("UPDATE rooms SET name = 'kitchen' WHERE id = 0")
    postgres.execute("NOTIFY rooms")
    wait_until(lambda: names().count("kitchen") > 10, "the new name")
    time.sleep(0.3)
    system.execute("DROP QUERY named; DROP TABLE rooms; DROP STREAM ticks")
    rows = read_jsonl(path)
    # one result a tuple, but for the one that was the newest when the table changed
    found = [(row["value"], row["name"]) for row in rows]
    assert len(found) - len({value for value, _ in found}) <= 1
    values = list(dict.fromkeys(value for value, _ in found))
    assert values == list(range(values[0], values[0] + len(values)))
    even = [name for value, name in found if value % 2 == 0]
    assert even == sorted(even)  # hall, then kitchen, never back
    assert {name for value, name in found if value % 2} == {"bath"}


def test_what_two_queries_need_is_computed_once(system: System) -> None:
    script, _ = write_sensors(system.folder, 3)
    system.run(
        script
        + "CREATE QUERY a AS SELECT Temp FROM Sensor1 WHERE Temp > 60 INTO jsonl(path = 'a.jsonl')"
        " AT centre;" + "CREATE QUERY b AS SELECT s.Temp FROM Sensor1 s WHERE s.Temp > 60"
        " INTO jsonl(path = 'b.jsonl') AT room2;"
    )
    (site,) = [one for one in system.coordinator.status().sites if one.site == "room1"]
    assert len(site.tasks) == 1
    system.execute("DROP QUERY a")
    (site,) = [one for one in system.coordinator.status().sites if one.site == "room1"]
    assert len(site.tasks) == 1
    system.execute("DROP QUERY b")
    (site,) = [one for one in system.coordinator.status().sites if one.site == "room1"]
    assert site.tasks == ()
    rows = read_jsonl(system.folder / "a.jsonl")
    assert rows
    assert rows == read_jsonl(system.folder / "b.jsonl")


def test_a_lookup_loses_none_of_several_tuples_of_one_time(system: System) -> None:
    """`[1us]` is all of this instant, where `[1 ROWS]` would be the last of it."""
    rows = [f"{n},{n % 2},{n // 4}" for n in range(12)]
    (system.folder / "many.csv").write_text("\n".join(["n,room,ts", *rows]))
    (system.folder / "two.csv").write_text("number,name\n0,hall\n1,kitchen\n")
    system.run("""
        CREATE STREAM many (n INT, room INT) TIMESTAMP ts FROM file(path = 'many.csv') AT room1;
        CREATE TABLE two (number INT, name STRING) FROM file(path = 'two.csv') AT centre;
        CREATE QUERY looked_up AS SELECT n, name FROM many[1us] AS m, two WHERE m.room = two.number
          INTO jsonl(path = 'looked_up.jsonl') AT centre;
    """)
    found = [(row["n"], row["name"]) for row in read_jsonl(system.folder / "looked_up.jsonl")]
    assert found == [(n, ["hall", "kitchen"][n % 2]) for n in range(12)]
