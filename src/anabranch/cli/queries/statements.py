"""The statements that `help` lists at the prompt, and the words for the prompt itself."""

from __future__ import annotations

from rich.markup import escape

from anabranch.cli.show.tables import out

LEAVE = frozenset({"exit", "quit", "\\q"})
HELP = frozenset({"help", "\\?"})
STATEMENTS = (
    (
        "CREATE STREAM name (column type, …) [TIMESTAMP field] [LATENESS time]\n"
        "  [AHEAD time] [SHED ABOVE n/time KEEP BY expression]\n"
        "  [FROM source(option = value, …)] [AT site];",
        "CREATE STREAM ticks (value BIGINT) FROM rate(tps = 10);",
    ),
    (
        "CREATE TABLE name (column type, …) FROM source(option = value, …) [AT site];",
        "CREATE TABLE rooms (id INT, name STRING) FROM file(path = 'rooms.csv');",
    ),
    (
        "CREATE QUERY name AS [MASTER stream, …] SELECT … FROM stream[window], …\n"
        "  [WHERE …] [GROUP BY …] [HAVING …] [INTO sink(option = value, …) [ON site]]\n"
        "  [STANDBY [ON site] [BATCH n] [RECOVERY time] [OVERHEAD p%] [COMPRESS]]\n"
        "  [DEADLINE time [BEST EFFORT]] [COST time [+ time PER TUPLE]] [AT site];",
        "CREATE QUERY even AS SELECT value FROM ticks WHERE value % 2 = 0\n"
        "  INTO jsonl(path = 'even.jsonl');",
    ),
    (
        "CREATE AGGREGATE name (type, …) RETURNS type\n  FROM python(class = 'module:Class');",
        "CREATE AGGREGATE p90 (INT) RETURNS INT FROM python(class = 'stats:P90');",
    ),
    (
        "CREATE POCKET name FROM python(class = 'module:Class') [AT site];",
        "CREATE POCKET alarm FROM python(class = 'alarms:FireAlarm');",
    ),
    (
        "CREATE SECRET name FROM env('VARIABLE') | FROM file('path') | AS 'text';",
        "CREATE SECRET pg FROM env('PG_PASSWORD');",
    ),
    (
        "EXPLAIN query;  EXPLAIN SELECT …;",
        "EXPLAIN SELECT count(*) AS n, window_end FROM ticks[10s SLIDE 5s];",
    ),
    ("DESCRIBE name;", "DESCRIBE ticks;"),
    (
        "SHOW STREAMS | TABLES | QUERIES | AGGREGATES | POCKETS | SITES\n  | SECRETS;",
        "SHOW QUERIES;",
    ),
    (
        "DROP STREAM | TABLE | QUERY | AGGREGATE | POCKET | SECRET\n  [IF EXISTS] name;",
        "DROP QUERY even;",
    ),
    (
        "RESUME QUERY name WITHOUT position TO position;",
        "RESUME QUERY even WITHOUT 981 TO 1000;",
    ),
)
"""What may be written, and one example of it."""

FOLLOWING = (
    ("TAIL name [LIMIT n];", "TAIL even LIMIT 10;"),
    ("SELECT … [LIMIT n];", "SELECT value + 1 AS next FROM even LIMIT 10;"),
)
"""What shows tuples as they come, here, until there are so many or Ctrl-C."""

_KEYS = (
    "A statement may take several lines and ends with ;. Tab completes, ↑ brings back\n"
    "what was typed before, Ctrl-C clears it. exit, quit, \\q or Ctrl-D leave."
)


def command_word(text: str) -> str:
    """`text` spelt as LEAVE and HELP have it; these words need no `;` but may have one."""
    return text.strip().rstrip(";").rstrip().lower()


def show_statements() -> None:
    for syntax, example in (*STATEMENTS, *FOLLOWING):
        out.print(escape(syntax), style="bold")
        out.print(escape(_indented(example)), style="dim")
    out.print(f"\n{_KEYS}", markup=False)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
