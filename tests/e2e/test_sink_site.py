"""A sink at another site than its query: INTO sink(…) ON site."""

from __future__ import annotations

from anabranch.coordinator.base.reports import SystemStatus
from bench.systems.system import System, read_jsonl

TICKS = (
    "CREATE STREAM ticks (value BIGINT) FROM rate(tps = 100000, rows = 5000, start = 0) AT room1;"
)


def sites_of_tasks(status: SystemStatus) -> dict[str, str]:
    tasks = (task for site in status.sites for task in site.tasks)
    return {task.name: task.site for task in tasks}


def test_the_sink_runs_there_and_gets_everything(system: System) -> None:
    status = system.run(
        f"""{TICKS}
        CREATE QUERY even AS SELECT value FROM ticks WHERE value % 2 = 0
          INTO jsonl(path = 'even.jsonl') ON centre AT room2;
        CREATE QUERY fours AS SELECT value FROM even WHERE value % 4 = 0
          INTO jsonl(path = 'fours.jsonl') AT room2;
        """
    )
    sites = sites_of_tasks(status)
    assert {name: sites[name] for name in ("even", "even/sink", "fours", "fours/sink")} == {
        "even": "room2",
        "even/sink": "centre",
        "fours": "room2",
        "fours/sink": "room2",
    }
    for step, name in ((2, "even"), (4, "fours")):
        assert read_jsonl(system.folder / f"{name}.jsonl") == [
            {"value": value, "_pos": n, "_ts": value * 10}
            for n, value in enumerate(range(0, 5000, step), start=1)
        ]


def test_it_goes_with_its_query(system: System) -> None:
    query = "CREATE QUERY all_ AS SELECT value FROM ticks INTO jsonl(path = 'all.jsonl') ON centre;"
    system.run(TICKS + query)
    assert len(read_jsonl(system.folder / "all.jsonl")) == 5000
    system.execute("DROP QUERY all_; DROP STREAM ticks;")
    assert sites_of_tasks(system.coordinator.status()) == {}
