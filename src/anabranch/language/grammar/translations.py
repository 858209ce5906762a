"""Remedies for words from other systems that speak SQL: what they are called here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from anabranch.errors import ScriptError
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.source import closest

_SOURCE = (
    "Where tuples come from stands in FROM: CREATE STREAM name (…) FROM kafka(servers = '…',"
    " topic = '…'). A TABLE is what queries look things up in."
)
_NO_WINDOW_FUNCTION = "is no function here: a window stands behind its stream in FROM"
_BOUND = ("is not needed", "Read window_start and window_end, of a window that stands in FROM.")
_LATENESS = "Write TIMESTAMP ts LATENESS 5s behind the columns: the watermark follows from them."

NO_SESSIONS = "is not supported: where a session ends depends on other tuples"
SESSIONS = "Make the sessions in a pocket: docs/pockets.md has one to copy."

FUNCTIONS: dict[str, tuple[str, str]] = {
    "TUMBLE": (_NO_WINDOW_FUNCTION, "Write FROM S[10m] GROUP BY …, and read window_start."),
    "HOP": (_NO_WINDOW_FUNCTION, "Write FROM S[10m SLIDE 5m] GROUP BY …, and read window_start."),
    "CUMULATE": (
        _NO_WINDOW_FUNCTION,
        "Write FROM S[10m SLIDE 1m] GROUP BY … for windows that overlap.",
    ),
    "SESSION": (NO_SESSIONS, SESSIONS),
    **{
        f"{kind}_{bound}": _BOUND
        for kind in ("TUMBLE", "HOP", "SESSION")
        for bound in ("START", "END", "ROWTIME", "PROCTIME")
    },
    "PROCTIME": ("is not needed", "Leave TIMESTAMP out, and _ts is the time of arrival in µs."),
    "ROWTIME": ("is not needed", "Read _ts, the event time in µs."),
    "CURRENT_WATERMARK": ("is not supported", "Windows end by the watermark by themselves."),
    "UNNEST": (
        "makes several rows of one tuple, which is not supported yet",
        "Join with a table of 1, 2, 3, … and take element_at(xs, i), as in FROM S, numbers"
        " AS n WHERE n.i <= size(xs); or use a pocket.",
    ),
}
"""Functions that Spark does not have, or has no use for here: what is wrong, and what to write."""

_ELSEWHERE = {
    **dict.fromkeys(("ARRAY_LENGTH", "LIST_LENGTH"), "size"),
    **dict.fromkeys(
        ("JSON_EXTRACT", "JSON_EXTRACT_SCALAR", "JSON_QUERY", "JSON_VALUE"), "get_json_object"
    ),
    **dict.fromkeys(("STRING_SPLIT", "STRING_TO_ARRAY"), "split"),
    "DATETIME_TRUNC": "date_trunc",
    "EPOCH_MS": "unix_millis",
    "GENERATE_SERIES": "sequence",
    "IIF": "if",
    "LIST_CONTAINS": "array_contains",
    "REGEXP_MATCHES": "regexp_like",
    "STRFTIME": "date_format",
    "STRPOS": "instr",
    "TO_TIMESTAMP_LTZ": "timestamp_millis",
}
"""From another system's name of a function to Spark's."""

_STATEMENTS = {
    "WITH": "Make each part a query of its own, CREATE QUERY part AS SELECT …, and read that.",
    "INSERT": "Write CREATE QUERY name AS SELECT … INTO sink(…).",
    "ALTER": "Drop it and create it again.",
    "UPDATE": "Streams are append-only; a table changes where it comes from.",
    "DELETE": "Streams are append-only; a table changes where it comes from.",
    "SET": "Settings of Spark stand in cluster.toml, as conf = { … } of a site.",
    "DESC": "Write DESCRIBE name.",
    "START": "A query runs from when it is created.",
    "STOP": "Write DROP QUERY name.",
}
_CREATIONS = {
    "VIEW": "Write CREATE QUERY name AS SELECT …: others can read it by its name.",
    "MATERIALIZED": "Write CREATE QUERY name AS SELECT …: others can read it by its name.",
    "SOURCE": "Write CREATE STREAM name (…) FROM kafka(…).",
    "SINK": "A query says where it writes: CREATE QUERY name AS SELECT … INTO kafka(…).",
    "FUNCTION": "Spark's functions are there; CREATE AGGREGATE makes an aggregate in Python.",
    "TEMPORARY": "Leave TEMPORARY out, and drop it when it is no longer needed.",
    "OR": "Drop it first: DROP QUERY IF EXISTS name; a script may do both.",
    "IF": "Drop it first: DROP QUERY IF EXISTS name; a script may do both.",
}
_CLAUSES = {
    "WITH": _SOURCE,
    "WATERMARK": _LATENESS,
    "PARTITIONED": "Partitions are the source's own; nothing is to be said of them here.",
    "PARTITION": "Group in the query instead, with GROUP BY.",
    "PRIMARY": "Streams are append-only and have no keys.",
    "EMIT": "Leave it out: a window gives its results once, when the watermark has passed its end.",
    "MATCH_RECOGNIZE": "Join the stream with itself, as in FROM S[1us] AS now, S[1m] AS before.",
    "PIVOT": "Write one aggregate for each column: SUM(CASE WHEN … THEN … END).",
    "WINDOW": "The window stands behind the stream in FROM, as in FROM S[10s SLIDE 5s].",
    "INTERVAL": "Durations are written 500ms, 10s, 5m, 1h.",
    "SESSION": SESSIONS,
}

OVER = (
    "For aggregates over windows write FROM S[10s] GROUP BY …; for what came before each tuple join"
    " the stream with itself, as in FROM S[1us] AS now, S[10s] AS before."
)
RANKING = (
    "For the best n of each window count those that are as good or better: join its results with"
    " themselves, FROM w[1us] AS a, w[1us] AS b WHERE b.x >= a.x. docs/language.md shows it whole."
)
"""Instead of functions that number the rows of a window."""
JOIN = (
    "Write FROM a[10s], b[10s] WHERE a.id = b.id for two streams, and FROM a, t WHERE a.id = t.id"
    " for a stream and a table: ON is a condition."
)
_OUTER = (
    "gives a row also where nothing fits, which is not known before a window ends",
    "Write FROM a[10s], b[10s] WHERE … (FROM a, t if t is a table), and look for what is missing in"
    " a pocket.",
)
_ABSENT = ("asks for what is not there, which is not known before a window ends", _OUTER[1])
_LATERAL = (
    "makes several rows of one tuple, which is not supported yet",
    FUNCTIONS["UNNEST"][1],
)
_JOINS = {
    **dict.fromkeys(("LEFT", "RIGHT", "FULL", "OUTER"), _OUTER),
    "ANTI": _ABSENT,
    "SEMI": ("is not supported", JOIN),
    "LATERAL": _LATERAL,
}
ENDLESS = {
    "ORDER": "Tuples come in the order of their positions, results of windows as these end.",
    "LIMIT": "Write INTO console(limit = 10), or at the prompt TAIL name LIMIT 10.",
    "QUALIFY": RANKING,
}
"""What to write instead of some of what only makes sense for tables, which end."""
DISTINCT = "Write SELECT a FROM S[10s] GROUP BY a: each value once in each window."
DISTINCT_IN = (
    "Take each value once in a query of its own, SELECT x FROM S[10s] GROUP BY x, and aggregate"
    " its results, FROM that[1us]: those of one window have one event time."
)


UNENDED = "A statement ends with ';': is one missing before this?"
_BEGIN = frozenset({"CREATE", "DROP", "RESUME", "SHOW", "DESCRIBE", "EXPLAIN", "SELECT", "MASTER"})
"""Words that statements begin with."""


def statement(token: Token) -> str:
    """A remedy for a script that goes on with `token` where a statement should."""
    return _of(_STATEMENTS, token)


def creation(token: Token) -> str:
    """A remedy for `CREATE` and then `token`."""
    return _of(_CREATIONS, token)


def clause(token: Token) -> str:
    """A remedy for `token` where a clause or the end should be."""
    return _of(_CLAUSES, token) or (UNENDED if token.key in _BEGIN else "")


def _of(table: dict[str, str], token: Token) -> str:
    word = (token.key.split() or [""])[0]
    return table.get(word, "") if token.kind is TokenKind.WORD else ""


def reject_function(cursor: Cursor, tokens: Sequence[Token]) -> ScriptError | None:
    """The error if the expression cannot be read because it calls one of FUNCTIONS; else None."""
    for token, after in pairwise(tokens):
        if after.key == "(" and token.key in FUNCTIONS:
            problem, remedy = FUNCTIONS[token.key]
            return cursor.error(token.span, f"{token.text}() {problem}", remedy)
    return None


def reject_join(cursor: Cursor) -> ScriptError:
    """The error for the JOIN that begins here."""
    token = cursor.peek()
    words = [one.key for ahead in range(3) if (one := cursor.peek(ahead)).key in _JOIN_WORDS]
    key = next((word for word in words if word in ("ANTI", "SEMI")), token.key)
    problem, remedy = _JOINS.get(key, ("is not supported", JOIN))
    if cursor.peek(1).key in ("UNNEST", "LATERAL") or cursor.peek(2).key == "UNNEST":
        problem, remedy = _LATERAL
    return cursor.error(token.span, f"{' '.join(words) or 'JOIN'} {problem}", remedy)


_JOIN_WORDS = frozenset(
    {
        "ANTI",
        "CROSS",
        "FULL",
        "INNER",
        "JOIN",
        "LATERAL",
        "LEFT",
        "NATURAL",
        "OUTER",
        "RIGHT",
        "SEMI",
    }
)


def reject_window_function(cursor: Cursor) -> None:
    """Raises for `FROM TABLE(TUMBLE(TABLE s, …))` and `FROM TUMBLE(s, …)`."""
    ahead = 2 if cursor.at("TABLE") and cursor.peek(1).key == "(" else 0
    if error := reject_function(cursor, (cursor.peek(ahead), cursor.peek(ahead + 1))):
        raise error


def reject_computed_column(cursor: Cursor) -> None:
    """Raises for `WATERMARK FOR …`, `PRIMARY KEY …` and `x AS PROCTIME()` among columns."""
    first, second = cursor.peek(), cursor.peek(1)
    if first.key == "PRIMARY KEY" or (first.key, second.key) == ("WATERMARK", "FOR"):
        raise cursor.error(first.span, f"{first.key} is not supported", clause(first))
    if first.is_name and second.key == "AS":
        proctime = cursor.peek(2).key == "PROCTIME"
        remedy = FUNCTIONS["PROCTIME"][1] if proctime else "Compute it in a query that reads this."
        raise cursor.error(second.span, "a column cannot be computed here", remedy)


def function_like(name: str, known: Iterable[str]) -> str:
    """`Did you mean …?` for a function that Spark does not know; `known` are those that it
    knows.
    """
    name_here = _ELSEWHERE.get(name.upper()) or closest(name, known, 0.7)
    return f"Did you mean {name_here}()?" if name_here else ""
