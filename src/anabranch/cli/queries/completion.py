"""What may be typed next at the prompt: a pure function of the text and the existing names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.errors import ScriptError
from anabranch.language.grammar.lexer import Token, TokenKind, tokenize
from anabranch.language.grammar.service_levels import METHODS, STANDBY_PARTS
from anabranch.language.source import Script

STATEMENTS = ("CREATE", "DROP", "RESUME", "SHOW", "DESCRIBE", "EXPLAIN", "SELECT", "TAIL")
COMMANDS = ("help", "exit")
_IN_STREAM = ("TIMESTAMP", "LATENESS", "AHEAD", "SHED ABOVE", "KEEP BY", "FROM", "AT")
_IN_TABLE = ("FROM", "AT")
_IN_AGGREGATE = ("RETURNS", "FROM")
_IN_QUERY = (
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "STANDBY",
    "DEADLINE",
    "COST",
    "INTO",
    "AT",
    "AS",
    "AND",
    "OR",
    "NOT",
    "SLIDE",
    "ROWS",
)
_SERVICES = ("STANDBY", "DEADLINE", "COST", "INTO", "AT")
"""The last clauses of a query, in any order."""
_IN_CREATE = {"STREAM": _IN_STREAM, "TABLE": _IN_TABLE, "AGGREGATE": _IN_AGGREGATE}
_AFTER = {
    "CREATE": ("STREAM", "TABLE", "QUERY", "AGGREGATE", "POCKET", "SECRET"),
    "DROP": ("STREAM", "TABLE", "QUERY", "AGGREGATE", "POCKET", "SECRET"),
    "RESUME": ("QUERY",),
    "SHOW": ("STREAMS", "TABLES", "QUERIES", "AGGREGATES", "POCKETS", "SITES", "SECRETS"),
}


@dataclass(frozen=True)
class KnownCall:
    """A source or sink: what its options are for, and the values that some of them take."""

    options: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """The names of all things that exist. Things that can be read map to the names of their
    columns.
    """

    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    aggregates: Sequence[str] = ()
    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pockets: Sequence[str] = ()
    sites: Sequence[str] = ()
    secrets: Sequence[str] = ()
    sources: Mapping[str, KnownCall] = field(default_factory=dict)
    table_sources: Mapping[str, KnownCall] = field(default_factory=dict)
    sinks: Mapping[str, KnownCall] = field(default_factory=dict)

    @property
    def readable(self) -> dict[str, Sequence[str]]:
        return {**self.streams, **self.tables, **self.queries}


@dataclass(frozen=True)
class Candidate:
    """`text` replaces the last `typed` characters before the cursor."""

    text: str
    typed: int
    meaning: str = ""


def complete(before: str, after: str, names: Names) -> list[Candidate]:
    """Candidates at the cursor between `before` and `after`; none in strings and comments."""
    tokens = _last_statement(before)
    if tokens is None:
        return []
    word = ""
    if tokens and tokens[-1].kind is TokenKind.WORD and before.endswith(tokens[-1].text):
        word = tokens.pop().text
    candidates = _expected(tokens, after, names)
    return [
        Candidate(text, len(word), meaning)
        for text, meaning in candidates.items()
        if text.lower().startswith(word.lower()) and text != word
    ]


def _last_statement(text: str) -> list[Token] | None:
    """The tokens of the statement that is being typed; None inside a string or comment."""
    try:
        tokens = tokenize(Script(text))[:-1]
    except ScriptError:
        return None
    behind = tokens[-1].span.end if tokens else 0
    if "--" in text[max(behind, text.rfind("\n") + 1) :]:
        return None
    ends = [index for index, token in enumerate(tokens) if token.key == ";"]
    return tokens[ends[-1] + 1 :] if ends else tokens


def _expected(tokens: list[Token], after: str, names: Names) -> dict[str, str]:
    """The texts that may come next, with their meanings, decided by the words before the cursor."""
    keys = [token.key for token in tokens]
    if not keys:
        return _plain(STATEMENTS, "statement") | _plain(COMMANDS, "command")
    call = _open_call(tokens, names)
    if call is not None:
        return _in_call(tokens, call)
    if len(keys) == 1 and keys[0] in _AFTER:
        return _plain(_AFTER[keys[0]])
    named = _after_keyword(keys, names)
    if named is not None:
        return named
    if keys[0] == "CREATE" and keys[1] in _IN_CREATE:
        return _plain(_IN_CREATE[keys[1]]) if ")" in keys else {}
    services = _in_services(keys)
    if services is not None:
        return _plain(services)
    if "SELECT" in keys:
        own = _plain((f"{name}(" for name in names.aggregates), "aggregate")
        columns = _columns([*tokens, *_readable_tokens(after)], names)
        return columns | own | _plain(_IN_QUERY)
    return _plain(("AS", "MASTER", "SELECT")) if len(keys) > 2 or "MASTER" in keys else {}


def _after_keyword(keys: list[str], names: Names) -> dict[str, str] | None:
    """The texts that the last word alone calls for; None if it calls for none."""
    match keys:
        case ["DROP", "STREAM"]:
            return _plain(names.streams, "stream")
        case ["DROP", "TABLE"]:
            return _plain(names.tables, "table")
        case ["DROP" | "RESUME", "QUERY"]:
            return _plain(names.queries, "query")
        case ["DROP", "AGGREGATE"]:
            return _plain(names.aggregates, "aggregate")
        case ["DROP", "POCKET"]:
            return _plain(names.pockets, "pocket")
        case ["DROP", "SECRET"]:
            return _plain(names.secrets, "secret")
        case ["DESCRIBE"]:
            others = _plain(names.aggregates, "aggregate") | _plain(names.pockets, "pocket")
            return _readable(names) | others
        case ["TAIL"]:
            return _plain(names.queries, "query") | _plain(names.streams, "stream")
        case ["EXPLAIN"]:
            words = _plain(("SELECT", "MASTER", "CREATE QUERY"))
            return _plain(names.queries, "query") | words
        case ["CREATE", "AGGREGATE" | "POCKET", *_, "FROM"]:
            return {"python(": ""}
        case ["CREATE", "STREAM" | "TABLE", *_, "FROM"]:
            return {f"{name}(": "source" for name in _sources(keys, names)}
        case [*_, "FROM"]:
            return _readable(names)
        case [*_, "MASTER"]:
            return _plain(names.streams, "stream") | _plain(names.queries, "query")
        case [*_, "INTO"]:
            return {f"{name}(": "sink" for name in names.sinks}
        case [*_, "AT" | "ON"]:
            return _plain(names.sites, "site")
    return None


def _in_services(keys: list[str]) -> list[str] | None:
    """The words that may follow after STANDBY, INTO or AT of a query; None before the first of
    these.
    """
    behind = keys[keys.index("FROM") :] if "SELECT" in keys and "FROM" in keys else []
    places = [index for index, key in enumerate(behind) if key in _SERVICES]
    if not places:
        return None
    inside = behind[places[-1] :]
    others = [word for word in _SERVICES if word not in behind]
    if inside[0] == "INTO":
        return [*(["ON"] if inside[-1] == ")" else []), *others]
    if inside[0] in ("AT", "COST"):
        return others
    if inside[0] == "DEADLINE":
        return [*(["BEST EFFORT"] if "BEST" not in inside else []), *others]
    if inside[-1] == "BATCH":
        return ["UNLIMITED"]
    methods = METHODS if inside[-1] == "COMPRESS" else ()
    return [*methods, *(word for word in STANDBY_PARTS if word not in inside), *others]


def _sources(keys: list[str], names: Names) -> Mapping[str, KnownCall]:
    return names.table_sources if keys[1:2] == ["TABLE"] else names.sources


def _open_call(tokens: list[Token], names: Names) -> KnownCall | None:
    """The source or sink in whose brackets the cursor is; None outside of them."""
    keys = [token.key for token in tokens]
    opened = max((index for index, key in enumerate(keys) if key == "("), default=0)
    if opened < 2 or ")" in keys[opened:]:
        return None
    before, name = keys[opened - 2], tokens[opened - 1].text.lower()
    known = {"FROM": _sources(keys, names), "INTO": names.sinks}.get(before, {})
    return known.get(name)


def _in_call(tokens: list[Token], call: KnownCall) -> dict[str, str]:
    keys = [token.key for token in tokens]
    if keys[-1] == "=":
        choices = call.choices.get(tokens[-2].text.lower(), ())
        return {f"'{choice}'": "" for choice in choices}
    if keys[-1] not in ("(", ","):
        return {}
    given = {tokens[index - 1].text.lower() for index, key in enumerate(keys) if key == "="}
    return {f"{name} = ": text for name, text in call.options.items() if name not in given}


def _columns(tokens: list[Token], names: Names) -> dict[str, str]:
    """The columns of the stream that is read, or of all streams while none is named."""
    readable = names.readable
    said = {token.text.lower() for token in tokens if token.is_name}
    chosen = [name for name in readable if name.lower() in said] or list(readable)
    return {column: f"of {name}" for name in reversed(chosen) for column in readable[name]}


def _readable_tokens(text: str) -> list[Token]:
    try:
        return tokenize(Script(text))
    except ScriptError:
        return []


def _readable(names: Names) -> dict[str, str]:
    tables = _plain(names.tables, "table")
    return _plain(names.streams, "stream") | tables | _plain(names.queries, "query")


def _plain(texts: Iterable[str], meaning: str = "") -> dict[str, str]:
    return dict.fromkeys(texts, meaning)
