"""Malformed texts: what people write, with mistakes that nobody would make on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

SCRIPTS = (
    "CREATE STREAM readings (id BIGINT, room STRING, celsius DOUBLE) TIMESTAMP ts LATENESS 5s"
    " FROM file(path = 'mine.csv', on_error = 'skip') AT room1;",
    "CREATE STREAM more (id BIGINT, room STRING) FROM file(path = '*.jsonl') AT room2;",
    "CREATE TABLE rooms (id INT, name STRING) FROM file(path = 'rooms.csv') AT room1;",
    "CREATE AGGREGATE midrange (DOUBLE) RETURNS DOUBLE FROM python(class = 'stats:Midrange');",
    "CREATE QUERY warm AS SELECT r.id, upper(room) AS room, r.celsius * 1.8 + 32 AS f"
    " FROM readings AS r WHERE r.celsius > 20 INTO jsonl(path = 'warm.jsonl') AT room1;",
    "CREATE QUERY fire AS MASTER readings SELECT readings.celsius, more.room"
    " FROM readings[1s], more[10 ROWS], rooms WHERE mod(readings.id, 7) = more.id;",
    "CREATE QUERY means AS SELECT room, avg(celsius) AS mean, window_end"
    " FROM readings[1s SLIDE 500ms] WHERE celsius > 40 GROUP BY room HAVING count(*) > 2"
    " INTO parquet(path = 'means', partition_by = 'room') ON room2;",
    "CREATE QUERY safe AS SELECT id FROM readings STANDBY ON room2 RECOVERY 2s OVERHEAD 30%"
    " INTO csv(path = 'mine.csv') AT room1;",
    "CREATE QUERY odd AS SELECT CASE WHEN celsius > 30 THEN 'hot' ELSE 'fine' END AS verdict"
    " FROM readings WHERE id % 2 = 1 INTO csv(path = 'rooms.csv', header = TRUE);",
    "SELECT transform(array(1, id), x -> x + 1) AS xs FROM readings INTO console(limit = 10);",
    "EXPLAIN SELECT id, celsius FROM readings INTO csv(path = 'notes.txt');",
    "DROP QUERY IF EXISTS warm; SHOW STREAMS; DESCRIBE readings; SHOW SITES;",
    "SELECT id FROM readings WHERE room LIKE 'h%' OR room IN ('a') AND celsius BETWEEN 1 AND 2;",
)
CSVS = (
    'id,room,celsius,ts\n1,hall,20.5,2026-01-31T12:00:10Z\n2,"a ""b""\n c",21,5\n\n3,,-1e3,7\n',
    "ts;id\n1;2\n",
    "\ufeffid,ROOM,celsius,ts\r\n1,hall,nan,2026-01-31\r\n",
    "id\tts\n" * 3,
)
JSONS = (
    '{"id": 1, "room": "hall", "celsius": 20.5, "ts": 5}\n{"id": 2, "ts": "2026-01-31T12:00Z"}\n',
    '[{"id": 1}]\n',
    '{"ID": null, "xs": [1, {"a": [true]}], "celsius": "NaN", "ts": 7}\n\n{"id": 1.5}\n',
)
CLUSTERS = (
    '[cluster]\nlisten = "127.0.0.1:0"\nheartbeat_interval = "100ms"\nmissed_heartbeats = 3\n'
    '[security]\ntoken_file = "token"\n[defaults]\nslots = 1\n'
    '[site.room1]\nslots = 2\nmaster = "local[2]"\nconf = { "spark.driver.memory" = "1g" }\n'
    '[site.room2]\nlisten = "127.0.0.1:7001"\n'
    '[[link]]\nfrom = "room1"\nto = "room2"\ndelay = "40ms"\nbandwidth = "10MB/s"\n',
    "[site.a]\n[site.b]\n",
)
_WORDS = (
    "SELECT", "FROM", "WHERE", "CREATE", "QUERY", "STREAM", "INTO", "AT", "GROUP BY", "MASTER",
    "STANDBY", "[1s]", "[10 ROWS]", "AND", "OVER", "NULL", "JOIN", "UNION ALL", "(", ")", "[", "]",
    ",", ";", "=", "'", '"', "`", "*", "--", "/*", "*/", "1e999", "-0", "9" * 40, "0x", "5s", "µs",
    "\x00", "\x1b[2J", "\ud7ff", "é", "\u202e", "𝔘", "\r", "\n", "\t", "\\", "%", "{", "}", ":",
)  # fmt: skip


def mutated(chance: Random, texts: Sequence[str]) -> str:
    text = chance.choice(texts)
    for _ in range(chance.choice((1, 1, 2, 3, 6, 20))):
        text = chance.choice(_CHANGES)(chance, text, texts)
    return text[:200_000]


def _cut(chance: Random, text: str, texts: Sequence[str]) -> str:
    low, high = sorted(chance.randint(0, len(text)) for _ in range(2))
    return text[:low] + text[high:]


def _end(chance: Random, text: str, texts: Sequence[str]) -> str:
    return text[: chance.randint(0, len(text))]


def _insert(chance: Random, text: str, texts: Sequence[str]) -> str:
    at = chance.randint(0, len(text))
    return f"{text[:at]}{chance.choice(_WORDS)}{text[at:]}"


def _repeat(chance: Random, text: str, texts: Sequence[str]) -> str:
    """A piece many times over: long lines, deep nesting."""
    at = chance.randint(0, len(text))
    piece = text[at : at + chance.randint(1, 12)] or chance.choice(_WORDS)
    return text[:at] + piece * chance.choice((2, 3, 50, 2000)) + text[at:]


def _character(chance: Random, text: str, texts: Sequence[str]) -> str:
    at = chance.randint(0, len(text))
    return (
        text[:at]
        + chr(chance.choice((chance.randint(0, 127), chance.randint(0, 0xD7FF))))
        + (text[at + 1 :])
    )


def _splice(chance: Random, text: str, texts: Sequence[str]) -> str:
    other = chance.choice(texts)
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


def _append(chance: Random, text: str, texts: Sequence[str]) -> str:
    return text + chance.choice(texts)


def _swap(chance: Random, text: str, texts: Sequence[str]) -> str:
    words = text.split(" ")
    first, second = (chance.randrange(len(words)) for _ in range(2))
    words[first], words[second] = words[second], words[first]
    return " ".join(words)


Change = Callable[[Random, str, Sequence[str]], str]
_CHANGES: tuple[Change, ...] = (
    _cut, _end, _insert, _insert, _repeat, _character, _splice, _append, _append, _swap,
)  # fmt: skip
