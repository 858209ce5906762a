"""Pockets in a running system: what they read, what they give, and what happens when they raise."""

from __future__ import annotations

import pytest

from anabranch.errors import AnabranchError, ConfigError, ScriptError, TaskError
from bench.systems.system import System, read_jsonl
from tests.pockets.support import ALARM, START_US, TICKS, submit, tasks, wait_for

COPY = "CREATE QUERY seen AS SELECT * FROM alarm INTO jsonl(path = 'seen.jsonl') AT centre;"


def seen(system: System) -> list[object]:
    """What `alarm` gave, once all is out."""
    system.wait()
    return [row["message"] for row in read_jsonl(system.folder / "seen.jsonl")]


def code(body: str, on_error: str = "stop", query: str = "SELECT n FROM ticks") -> str:
    """A pocket that fills the stream `alarm`, which is there already."""
    lines = "".join(f"\n    {line}" for line in body.strip("\n").splitlines())
    return (
        "from anabranch.pocket import Pocket\n"
        "class Siren(Pocket):\n"
        f"    query, output, on_error = {query!r}, 'alarm', {on_error!r}\n{lines}\n"
    )


def prepare(system: System) -> None:
    system.execute(TICKS + "CREATE STREAM alarm (message STRING) AT room2;" + COPY)


def test_a_pocket_brings_its_query_and_its_stream_along(system: System) -> None:
    system.execute(TICKS)
    pocket = submit(system, ALARM)
    assert (pocket.input, pocket.output, pocket.site) == ("FireAlarm_input", "alarm", "room1")
    (answer,) = system.execute("SHOW POCKETS;")
    assert answer.rows == (("FireAlarm", "room1", "FireAlarm_input", "alarm", "/nowhere/alarm.py"),)
    (answer,) = system.execute("DESCRIBE FireAlarm;")
    assert answer.rows == (("reads", "FireAlarm_input"), ("fills", "alarm"), ("site", "room1"))
    system.wait()
    report = tasks(system)["FireAlarm"]
    assert (report.rows_in, report.rows_out, report.state) == (3, 3, "done")
    (answer,) = system.execute("DROP POCKET FireAlarm;")
    assert answer.text == (
        "pocket FireAlarm dropped, and with it query FireAlarm_input and stream alarm"
    )
    assert tasks(system) == {}


def test_its_output_is_a_stream_that_others_query(system: System) -> None:
    system.execute(TICKS + "CREATE STREAM alarm (message STRING) AT room2;" + COPY)
    submit(system, ALARM.replace("CREATE STREAM alarm (message string)", "alarm"))
    assert seen(system) == ["fire: 30", "fire: 40", "fire: 50"]
    times = [row["_ts"] for row in read_jsonl(system.folder / "seen.jsonl")]
    assert times == [START_US + 10 * n for n in (3, 4, 5)]


def test_what_others_read_by_now_stays_when_a_pocket_is_dropped(system: System) -> None:
    system.execute(TICKS)
    submit(system, ALARM)
    system.execute("CREATE QUERY more AS SELECT message FROM alarm AT centre;")
    with pytest.raises(ScriptError, match="alarm is filled or read by FireAlarm, more"):
        system.execute("DROP STREAM alarm;")
    with pytest.raises(ScriptError, match="Drop them first: DROP POCKET FireAlarm;"):
        system.execute("DROP STREAM ticks;")
    with pytest.raises(ScriptError, match="FireAlarm is a pocket"):
        system.execute("DROP QUERY FireAlarm;")
    (answer,) = system.execute("DROP POCKET FireAlarm;")
    assert answer.text == "pocket FireAlarm dropped, and with it query FireAlarm_input"
    assert set(tasks(system)) == {"more"}


@pytest.mark.parametrize(
    "body",
    [
        "def process(self, batch):\n"
        "    return batch.selectExpr(\"concat('n=', n) AS message\", '_ts')",
        "def process(self, batch):\n"
        "    frame = batch.toPandas()\n"
        "    frame['MESSAGE'] = [f'n={n}' for n in frame.n]\n"
        "    return frame",
        "def process(self, batch):\n    return [(f'n={row.n}',) for row in batch.collect()]",
        "def row(self, row):\n    return {'message': f\"n={row['n']}\"}",
        "def row(self, row):\n    return f\"n={row['n']}\",",
        "def open(self):\n    self.sep = '='\n"
        "def row(self, row):\n    return [{'Message': f\"n{self.sep}{row['n']}\"}]",
    ],
    ids=["spark", "pandas", "rows", "dict", "tuple", "list"],
)
def test_every_form_of_output(system: System, body: str) -> None:
    prepare(system)
    submit(system, code(body))
    assert seen(system) == [f"n={n}" for n in range(6)]


def test_a_failing_pocket_does_not_hold_up_others_of_the_same_input(system: System) -> None:
    system.execute(
        "CREATE STREAM ticks (n BIGINT, pad STRING) FROM rate(tps = 1000000, rows = 400000,"
        " n = 'value', pad = \"repeat('x', 200)\") AT room1;"
        "CREATE STREAM alarm (message STRING) AT room1;"
    )
    submit(system, code("def row(self, row):\n    raise ValueError('no')", query="ticks"))
    system.execute("CREATE QUERY count AS SELECT n FROM ticks WHERE n % 1000 = 0 AT room1;")
    report = wait_for(system, "Siren", "failed")
    assert report.error.message == "pocket Siren failed: ValueError: no"
    assert report.error.place == "/nowhere/alarm.py:6"
    assert "in row" in report.pocket.traceback
    assert "raise ValueError('no')" in report.pocket.traceback
    assert "anabranch/site" not in report.pocket.traceback
    done = wait_for(system, "count", "done", 60)
    assert done.error is None


def test_a_slow_pocket_holds_up_nobody_at_its_site(system: System) -> None:
    prepare(system)
    go_on = system.folder / "go_on"
    body = f"""
def row(self, row):
    import os, time
    while not os.path.exists({str(go_on)!r}):
        time.sleep(0.05)
"""
    submit(system, code(body, query="SELECT n FROM ticks AT room2"))
    system.execute(TICKS.replace("ticks", "others").replace("room1", "room2"))
    system.execute("CREATE QUERY q AS SELECT n FROM others AT room2;")
    wait_for(system, "q", "done")
    assert tasks(system)["Siren"].state == "running"
    go_on.touch()
    wait_for(system, "Siren", "done")


def test_what_raises_may_be_skipped(system: System) -> None:
    prepare(system)
    body = "def row(self, row):\n    return {'message': str(6 // (row['n'] - 2))}"
    submit(system, code(body, "skip"))
    assert seen(system) == ["-3", "-6", "6", "3", "2"]
    assert tasks(system)["Siren"].pocket.skipped == 1


def test_what_does_not_fit_may_be_skipped(system: System) -> None:
    prepare(system)
    body = "def row(self, row):\n    return {'message': 'x' if row['n'] % 2 else row['n']}"
    submit(system, code(body, "skip"))
    assert seen(system) == ["x", "x", "x"]
    report = tasks(system)["Siren"].pocket
    assert report.skipped == 3
    assert "column message (string): 4 does not fit" in report.traceback


def test_a_new_one_may_try_again(system: System) -> None:
    prepare(system)
    body = """
made = 0
def open(self):
    type(self).made += 1
    self.given = 0
def row(self, row):
    self.given += 1
    if self.given == 3 and self.made < 3:
        raise OSError('gone')
    return {'message': f"{row['n']} by {self.made}"}
"""
    submit(system, code(body, "restart"))
    assert seen(system) == ["0 by 1", "1 by 1", "2 by 2", "3 by 2", "4 by 3", "5 by 3"]
    report = tasks(system)["Siren"].pocket
    assert (report.restarts, report.skipped) == (2, 0)


def test_a_third_failure_stops_it(system: System) -> None:
    prepare(system)
    submit(system, code("def row(self, row):\n    raise OSError('gone')", "restart"))
    assert wait_for(system, "Siren", "failed").pocket.restarts == 2


def test_one_that_cannot_be_opened_is_not_submitted(system: System) -> None:
    prepare(system)
    body = "def open(self):\n    raise OSError('no bell')\ndef row(self, row): pass"
    with pytest.raises(TaskError, match=r"alarm.py:6: pocket Siren failed: OSError: no bell"):
        submit(system, code(body))
    assert set(tasks(system)) == {"seen", "seen/sink"}
    submit(system, code("def row(self, row): return {'message': 'x'}"))
    assert len(seen(system)) == 6


def test_its_python_functions_may_go_to_sparks_workers(system: System) -> None:
    prepare(system)
    body = (
        "def process(self, batch):\n"
        "    from pyspark.sql.functions import udf\n"
        "    return batch.select(udf(helper)('n').alias('message'))"
    )
    submit(system, "def helper(n):\n    return f'<{n}>'\n" + code(body))
    assert seen(system) == [f"<{n}>" for n in range(6)]


PASS = "def row(self, row): pass"


@pytest.mark.parametrize(
    ("pocket", "message"),
    [
        (code(PASS).replace("'alarm'", "'none'"), "cannot fill 'none', which does not exist"),
        (code(PASS).replace("'alarm'", "'ticks'"), "cannot fill stream ticks. Its output is a"),
        (code(PASS, query="nothing"), "cannot read 'nothing', which does not exist"),
        (code(PASS, query="alarm"), "would read what it gives, by way of alarm"),
        (code(PASS, query="seen"), "would read what it gives, by way of seen"),
        (code(PASS, query="SELECT m FROM ticks"), "Siren.query:1:38: unknown column 'm'"),
        (code(PASS, query="DROP STREAM ticks"), "Siren.query: this is no query"),
        (code(PASS).replace("'alarm'", "'SELECT 1 FROM ticks'"), "Siren.output: this is no stream"),
        (code(PASS + "\nsite = 'hall'"), "unknown site 'hall'. Known sites: "),
        (code(PASS + "\nsite = 'room1'"), "must run at room2, where its output stream alarm is"),
        (code("x = 1"), "class Siren: it defines neither of process and row"),
        (code(PASS, on_error="retry"), "class Siren: its on_error is 'retry'. It is 'stop'"),
        (code(PASS).replace("query, ", "q, "), "class Siren: it has no query. As in query = "),
        (code("import nothing_like_it"), "loading it failed: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_pocket(system: System, pocket: str, message: str) -> None:
    prepare(system)
    with pytest.raises(AnabranchError) as caught:
        submit(system, pocket)
    assert message in str(caught.value)
    assert system.coordinator.status().pockets == ()


def test_a_name_is_given_once(system: System) -> None:
    prepare(system)
    submit(system, code(PASS), name="one")
    with pytest.raises(ConfigError, match="there is a pocket one already"):
        submit(system, code(PASS), name="ONE")
    with pytest.raises(ConfigError, match="stream alarm is filled by pocket one already"):
        submit(system, code(PASS), name="two")
    with pytest.raises(ConfigError, match="pocket Bell and the stream it brings along have"):
        submit(system, code(PASS).replace("'alarm'", "'CREATE STREAM bell (a INT)'"), name="Bell")


def test_a_wrong_column_is_told_without_our_own_code(system: System) -> None:
    prepare(system)
    submit(system, code("def row(self, row): yield {'mesage': 'x'}"))
    report = wait_for(system, "Siren", "failed")
    assert report.error.message == ("pocket Siren failed: the stream has no column 'mesage'")
    assert report.pocket.traceback == ("the stream has no column 'mesage'. The stream has message.")


def test_a_pocket_in_a_script(system: System) -> None:
    """It is deployed with the rest, so that it sees the first tuple; at the end it is closed, and
    what it gives then is put out."""
    closing = ALARM + "\n    def close(self):\n        yield {'message': 'over'}\n"
    (system.folder / "alarms.py").write_text(closing)
    answers = system.execute(
        TICKS + "CREATE POCKET alarms_of FROM python(class = 'alarms:FireAlarm');" + COPY
    )
    assert [one.text for one in answers[1:]] == [
        "pocket alarms_of created at centre, and with it query alarms_of_input and stream alarm",
        "query seen created at centre",
    ]
    assert seen(system) == ["fire: 30", "fire: 40", "fire: 50", "over"]
    with pytest.raises(ScriptError, match="there is no pocket Fire"):
        system.execute("CREATE POCKET p FROM python(class = 'alarms:Fire');")
    with pytest.raises(ScriptError, match=r"none\.py: cannot read it: No such file"):
        system.execute("CREATE POCKET p FROM python(class = 'none:Fire');")
