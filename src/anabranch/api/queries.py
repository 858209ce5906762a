"""Queries: the part of a statement between SELECT and AT, and what runs once it is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Never, Self

from anabranch.api.client import Client
from anabranch.api.results import Results, reader_name, table
from anabranch.api.text import Duration, SinkCall, Text, call_text, conjunction, duration, listed
from anabranch.api.text import name as written
from anabranch.errors import AnabranchError, ConfigError
from anabranch.language.source import Script
from anabranch.link.messages import Attach
from anabranch.plan.service_levels import percentage

_ELSEWHERE = {
    "filter": "where(condition)",
    "withColumn": "select('*', name='expression')",
    "selectExpr": "select(…)",
    "groupby": "group_by(…)",
    "groupBy": "group_by(…)",
    "agg": "group_by(…).select(n='COUNT(*)')",
    "join": "join(a['10s'], b['10s']) of the module anabranch",
    "merge": "join(a['10s'], b['10s']) of the module anabranch",
    "union": "cluster.sql('CREATE QUERY u AS SELECT * FROM a UNION ALL SELECT * FROM b')",
    "limit": "rows(limit=10) of a started query",
    "head": "rows(limit=10) of a started query",
    "show": "rows(limit=10) of a started query",
    "collect": "to_arrow() or to_pandas() of a started query",
    "toPandas": "to_pandas() of a started query",
    "writeStream": "start(name, into=sink(…))",
}
"""What frames of Spark and pandas have, and what says it here."""


class Readable:
    """Something that a query can be made of: a stream, a query, one of these with a window, a
    draft.
    """

    def _draft(self) -> Draft:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Never:
        kind = type(self).__name__
        remedy = f". Write {_ELSEWHERE[name]}." if name in _ELSEWHERE else ""
        raise AttributeError(f"{kind!r} object has no attribute {name!r}{remedy}")

    def where(self, condition: str) -> Draft:
        """Keeps only the tuples for which the Spark SQL `condition` is TRUE. Several conditions
        must all hold.

        >>> sensor.where("celsius > 50").where("room = 'kitchen'")  # doctest: +SKIP
        """
        draft = self._draft()
        return replace(draft, conditions=(*draft.conditions, condition))

    def select(self, *columns: str, **expressions: str) -> Draft:
        """Chooses the output's columns: names or expressions, `"*"`, and `name="expression"`.
        Without it, the output has all columns.

        >>> sensor.select("room", fahrenheit="celsius * 1.8 + 32")  # doctest: +SKIP
        """
        draft = self._draft()
        items = tuple((text, "") for text in columns)
        named = tuple((text, name) for name, text in expressions.items())
        return replace(draft, items=(*draft.items, *items, *named))

    def group_by(self, *expressions: str) -> Draft:
        """Gives one result for each group and window.

        >>> sensor.window("1h").group_by("room").select("room", n="COUNT(*)")  # doctest: +SKIP
        """
        draft = self._draft()
        return replace(draft, groups=(*draft.groups, *expressions))

    def having(self, condition: str) -> Draft:
        """Keeps only the groups for which the condition is TRUE. Several conditions must all
        hold.
        """
        draft = self._draft()
        return replace(draft, havings=(*draft.havings, condition))

    def standby(
        self,
        *,
        on: str | None = None,
        batch: int | str | None = None,
        recovery: Duration | None = None,
        overhead: float | str | None = None,
        compress: str | bool | None = None,
    ) -> Draft:
        """Protects the query by a standby. The last call replaces earlier ones.

        `on` is its site; `batch` is the number of tuples that it is sent at a time, or "unlimited";
        `recovery` and `overhead` (0.3 or "30%") are the limits for the choice of a batch;
        `compress` is True or a method. The system chooses what is left out.

        >>> sensor.standby(recovery="2s", overhead=0.3)  # doctest: +SKIP
        """
        parts = [(" STANDBY", "standby")]
        if on is not None:
            parts.append((f" ON {written(on, 'standby(on)')}", "standby(on)"))
        if batch is not None:
            parts.append((f" BATCH {batch}", "standby(batch)"))
        if recovery is not None:
            parts.append((f" RECOVERY {duration(recovery)}", "standby(recovery)"))
        if overhead is not None:
            text = overhead if isinstance(overhead, str) else percentage(overhead)
            parts.append((f" OVERHEAD {text}", "standby(overhead)"))
        if compress:
            method = "" if compress is True else f" {compress}"
            parts.append((f" COMPRESS{method}", "standby(compress)"))
        return replace(self._draft(), protection=tuple(parts))

    def deadline(
        self, within: Duration, *, best_effort: bool = False, cost: str | None = None
    ) -> Draft:
        """Every result is due this long after the tuple that completes it entered the system. With
        `best_effort` the query is started though the deadline may not hold; `cost` is what its own
        task takes, as in "3ms + 20us PER TUPLE". The last call replaces earlier ones.

        >>> sensor.where("celsius > 50").deadline("300ms")  # doctest: +SKIP
        """
        parts = [(f" DEADLINE {duration(within)}", "deadline(within)")]
        if best_effort:
            parts.append((" BEST EFFORT", "deadline(best_effort)"))
        if cost is not None:
            parts.append((f" COST {cost}", "deadline(cost)"))
        return replace(self._draft(), due=tuple(parts))

    def start(
        self, name: str, *, at: str | None = None, into: SinkCall | None = None, follow: bool = True
    ) -> Query:
        """Starts it as a query: at the site `at`, or else where its first input is.

        Its results are kept for the returned object, from the first on. If they are not read, the
        query waits, unless it has a sink: then unread results are dropped here. With
        `follow=False`, or when the object is gone or closed, they are not kept.

        >>> sensor.where("celsius > 50").start("hot", into=sink("console"))  # doctest: +SKIP
        """
        draft, place = self._draft(), "start(name)"
        text = Text("CREATE QUERY ").add(written(name, place), place).add(" AS ")
        text.join(draft.text())
        if into is not None:
            text.add(" INTO ").join(call_text(into, "start(into)"))
            if into.site is not None:
                place = "start(into): on"
                text.add(" ON ").add(written(into.site, place), place)
        if at is not None:
            text.add(" AT ").add(written(at, "start(at)"), "start(at)")
        return Query.create(draft.client, name, text, follow=follow, spare=into is not None)

    def explain(self) -> str:
        """How it runs, or would run, from the results down to the sources."""
        draft = self._draft()
        return draft.client.execute(Text("EXPLAIN ").join(draft.text())).text


@dataclass(frozen=True)
class Input(Readable):
    """A stream, table or query as it stands in FROM: with a window, under an alias."""

    client: Client
    name: str
    window: str = ""
    called: str = ""

    def alias(self, name: str) -> Input:
        """Gives it another name in expressions: to join a stream with itself."""
        return replace(self, called=name)

    def _draft(self) -> Draft:
        return Draft(self.client, (self,))


def window_text(width: Duration | int, slide: Duration | int | None = None) -> str:
    """The text inside the brackets; whole numbers count tuples."""
    text = f"{width} ROWS" if isinstance(width, int) else duration(width)
    if slide is None:
        return text
    return f"{text} SLIDE {slide if isinstance(slide, int) else duration(slide)}"


@dataclass(frozen=True)
class Draft(Readable):
    """A query that is not started yet. Every method returns a new draft and changes nothing."""

    client: Client
    inputs: tuple[Input, ...]
    masters: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = ()
    havings: tuple[str, ...] = ()
    protection: tuple[tuple[str, str], ...] = ()
    """The pieces of STANDBY, and the arguments that gave them."""
    due: tuple[tuple[str, str], ...] = ()
    """Those of DEADLINE and COST."""

    def _draft(self) -> Draft:
        return self

    @property
    def sql(self) -> str:
        """The query as text."""
        return str(self.text())

    def text(self) -> Text:
        """The query as a statement whose parts know their arguments."""
        text = Text()
        if self.masters:
            masters = ", ".join(written(one, "join(master)") for one in self.masters)
            text.add("MASTER ").add(masters, "join(master)").add(" ")
        text.add("SELECT ").join(listed(map(_item, self.items or (("*", ""),)), ", "))
        text.add(" FROM ").join(listed(map(_from_item, self.inputs), ", "))
        if self.conditions:
            text.add(" WHERE ").join(conjunction(self.conditions, "where"))
        if self.groups:
            groups = (Text().add(one, "group_by") for one in self.groups)
            text.add(" GROUP BY ").join(listed(groups, ", "))
        if self.havings:
            text.add(" HAVING ").join(conjunction(self.havings, "having"))
        for piece, argument in (*self.protection, *self.due):
            text.add(piece, argument)
        return text


class Relation(Readable):
    """Something that queries can read."""

    kind = "relation"

    def __init__(self, client: Client, name: str, site: str) -> None:
        self._client = client
        self.name = name
        self.site = site

    def __getitem__(self, window: Duration | int) -> Input:
        """The relation with a window: `s["10s"]`, `s["10s SLIDE 5s"]`, `s[100]` (tuples)."""
        return self.window(window)

    def window(self, width: Duration | int, slide: Duration | int | None = None) -> Input:
        """The relation with a window of event time, `s.window("30m", slide="10m")`, or of a number
        of tuples.
        """
        return Input(self._client, self.name, window_text(width, slide))

    def alias(self, name: str) -> Input:
        """The relation under another name in expressions."""
        return Input(self._client, self.name, called=name)

    def describe(self) -> dict[str, str]:
        """Its columns and their types."""
        answer = self._client.execute(Text(f"DESCRIBE {written(self.name, 'name')}"))
        return {column: type_ for column, type_ in answer.rows}  # noqa: C416 (typed)

    def drop(self) -> None:
        """Drops it. Raises ScriptError while others read it."""
        self._client.execute(Text(f"DROP {self.kind.upper()} ").add(written(self.name, "drop")))

    def _draft(self) -> Draft:
        return Draft(self._client, (Input(self._client, self.name),))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} at {self.site}>"

    def _repr_html_(self) -> str:
        """A table of its columns, for a notebook."""
        try:
            columns = self.describe()
        except AnabranchError:  # it was dropped, perhaps
            columns = {}
        return f"<pre>{escape(repr(self))}</pre>" + table(("column", "type"), list(columns.items()))


class Query(Relation, Results):
    """A running query: read its results, or make other queries of it.

    >>> for row in hot: print(row["celsius"])  # doctest: +SKIP
    """

    kind = "query"

    @classmethod
    def create(
        cls, client: Client, name: str, statement: Text, *, follow: bool, spare: bool
    ) -> Self:
        consumer = reader_name()
        readers = {name: consumer} if follow else {}
        query = cls(client, name, "")

        def begin() -> None:
            query.site = client.find(name).site
            if follow:
                query._follow(name, query.site, consumer, spare=spare)

        if client.gathered is not None:
            client.gathered.statement(statement, readers, begin)
        else:
            client.execute(statement, readers=readers)
            begin()
        return query

    @classmethod
    def selected(cls, client: Client, select: Script, base: str, *, wait: bool = True) -> Self:
        """A SELECT without a name, to look at its results; `drop` it afterwards. `wait` is the time
        to wait for sites that are being started.
        """
        consumer = reader_name()
        name = f"select_{consumer[-8:]}"
        client.script(select.text, readers={name: consumer}, base=base, unnamed=name, wait=wait)
        query = cls(client, name, client.find(name).site)
        query._follow(name, query.site, consumer, spare=False)
        return query

    @classmethod
    def joined(cls, client: Client, name: str, site: str) -> Self:
        """A query that runs already, followed from now on."""
        query = cls(client, name, site)
        consumer = reader_name()
        client.site(site).send(Attach(name, consumer, lease=True))
        query._follow(name, site, consumer, spare=False)
        return query

    def explain(self) -> str:
        """How it runs, from the results down to the sources."""
        return self._client.execute(Text(f"EXPLAIN {written(self.name, 'name')}")).text

    def drop(self) -> None:
        self.close()
        super().drop()


def join(
    *inputs: Readable, master: Readable | str | Sequence[Readable | str] | None = None
) -> Draft:
    """The combinations of tuples in the windows of `inputs`, evaluated at each tuple of `master`
    (of all inputs, if it is left out). Streams need windows, tables take none.

    >>> join(s1["1s"], s2["1s"], master=s1).where("s1.Temp > s2.Temp")  # doctest: +SKIP
    """
    if not inputs:
        raise ConfigError("there is nothing to join", place="join(inputs)")
    named = [_as_input(one) for one in inputs]
    if len({id(one.client) for one in named}) > 1:
        raise ConfigError("these belong to different clusters", place="join(inputs)")
    given = [] if master is None else [master] if isinstance(master, Readable | str) else master
    masters = tuple(_master(one, named) for one in given)
    return Draft(named[0].client, tuple(named), masters)


def _as_input(given: Readable) -> Input:
    draft = given._draft()
    if draft != Draft(draft.client, draft.inputs) or len(draft.inputs) != 1:
        raise ConfigError(
            "what is joined is a stream, a table or a query with its window",
            place="join(inputs)",
            remedy="Put conditions and columns behind the join, or start that as a query first.",
        )
    return draft.inputs[0]


def _master(given: Readable | str, inputs: Sequence[Input]) -> str:
    if isinstance(given, str):
        return given
    wanted = _as_input(given)
    inputs_ = [one for one in inputs if one == wanted] or [
        one for one in inputs if one.name == wanted.name
    ]
    if len(inputs_) != 1:
        problem = "is not among the inputs" if not inputs_ else "stands for several inputs"
        raise ConfigError(
            f"{wanted.called or wanted.name} {problem}",
            place="join(master)",
            remedy="Give one of the inputs.",
        )
    return inputs_[0].called or inputs_[0].name


def _item(item: tuple[str, str]) -> Text:
    text, name = item
    place = f"select({name})" if name else "select"
    alias = f" AS {written(name, place)}" if name else ""
    return Text().add(f"{text}{alias}", place)


def _from_item(item: Input) -> Text:
    text = Text().add(written(item.name, "the input"), "the input")
    if item.window:
        text.add(f"[{item.window}]", f"the window of {item.name}")
    if item.called:
        text.add(" AS ").add(written(item.called, "alias"), "alias")
    return text
