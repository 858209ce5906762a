"""Requests drawn from the API's own schema, valid ones and not: none fails, none shows our inside,
and nothing that a reader or a stranger sends changes anything."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.face.access import OPEN, TokenAccess
from anabranch.face.routes import make_app
from anabranch.face.system import System
from anabranch.language.source import Script
from bench.fuzz.texts import SCRIPTS, mutated

Progress = Callable[[str], None]
WHO = ("stranger", "reader", "reader", "operator", "operator")
EXPLAINS = (
    "EXPLAIN fuzzed; DROP QUERY fuzzed;",
    "EXPLAIN fuzzed; EXPLAIN fuzzed;",
    "-- why?\nEXPLAIN fuzzed;",
    "SELECT value FROM fuzz; CREATE STREAM more (value BIGINT);",
    "DROP QUERY fuzzed;",
    "CREATE QUERY twice AS SELECT value FROM fuzzed;",
    " ; ; -- nothing",
)
"""What a reader may send, with and without more than that behind it."""
_REQUESTS_AT_A_TIME = 100
_MOST_PROBLEMS = 20


class Fuzz:
    """`system` is real and may be left with whatever an operator's requests have made of it."""

    def __init__(self, system: System) -> None:
        import schemathesis

        credentials = system.coordinator.credentials
        self._coordinator: Coordinator = system.coordinator
        self._headers = {
            "stranger": {},
            "reader": {"Authorization": f"Bearer {credentials.reader_token}"},
            "operator": {"Authorization": f"Bearer {credentials.token}"},
        }
        access = TokenAccess(
            make_app(system), credentials.token, secure=False, reader=credentials.reader_token
        )
        self._schema = schemathesis.openapi.from_asgi(
            "/api/openapi.json", access, headers=self._headers["operator"]
        )
        self.sent: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.problems: list[str] = []
        site = sorted(self._coordinator.sites.alive())[0]
        system.execute(
            f"CREATE STREAM fuzz (value BIGINT) FROM rate(tps = 1) AT `{site}`;"
            f"CREATE QUERY fuzzed AS SELECT value FROM fuzz AT `{site}`;"
        )

    def run(self, requests: int, seed: int, progress: Progress) -> dict[str, Any]:
        done = 0
        while done < requests and len(self.problems) < _MOST_PROBLEMS:
            count = min(_REQUESTS_AT_A_TIME, requests - done)
            self._some(count, Random(f"{seed}/{done}"))
            done += count
            progress(f"{sum(self.sent.values()):,} of {requests:,} requests")
        return {
            "sent": dict(self.sent),
            "problems": self.problems,
            "answers": {str(code): count for code, count in sorted(self.answers.items())},
        }

    def _some(self, count: int, chance: Random) -> None:
        from hypothesis import HealthCheck, Phase, given, seed, settings

        @seed(chance.getrandbits(32))
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=self._schema.as_strategy())
        def send(case: Any) -> None:
            self._one(case, chance)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            send()

    def _one(self, case: Any, chance: Random) -> None:
        who = chance.choice(WHO)
        _shortened(case, chance)
        before = self._state() if who != "operator" else None
        what = f"{who} {case.method} {case.formatted_path}"
        try:
            answer = case.call(headers=self._headers[who])
        except Exception as error:  # which a server would have answered with 500
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
            return
        self.sent[who] += 1
        self.answers[answer.status_code] += 1
        if answer.status_code >= 500 and case.path not in OPEN:  # not being ready is an answer
            self.problems.append(f"{what}: {answer.status_code} {answer.text[:200]}")
        if "Traceback (most recent" in answer.text:
            self.problems.append(f"{what}: shows a traceback")
        if who == "stranger" and case.path not in OPEN and answer.status_code != 401:
            self.problems.append(f"{what}: {answer.status_code} without the token")
        if before is not None and self._state() != before:
            self.problems.append(f"{what}: changed the system")

    def _state(self) -> tuple[Any, ...]:
        """What a reader must not change: what there is, who is up, whether all is to stop."""
        known = self._coordinator.plan(Script(""), "")
        definitions = tuple(one.model_dump_json() for one in known)
        return (
            definitions,
            tuple(self._coordinator.sites.alive()),
            self._coordinator.stop_asked.is_set(),
        )


def _shortened(case: Any, chance: Random) -> None:
    """What would be followed for long is not; a text that no schema describes is often a script."""
    query = case.query if isinstance(case.query, dict) else {}
    if case.path == "/api/events" and _number(query.get("count", 10)) > 1:
        case.query = query | {"count": 1}
    if case.path.startswith("/api/tail") and _number(query.get("timeout_s", 60)) > 0.2:
        case.query = query | {"timeout_s": 0.05}
    if case.path in ("/api/statements", "/api/explain") and chance.random() < 0.5:
        texts = EXPLAINS if case.path == "/api/explain" else SCRIPTS
        case.body = {"text": chance.choice((chance.choice(texts), mutated(chance, texts)))}


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
