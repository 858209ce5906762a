"""Talking to a state server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError, SiteError, from_dict
from anabranch.link.door import LONG_BYTES, PROVE
from anabranch.plan.spec import Spec
from anabranch.stage.offsets import Range
from anabranch.stage.service import Counts

CALL_S = 30.0
"""Longest wait for an answer. A server that stands still is one that is gone."""
MOVE_S = 120.0
"""The same for what carries many rows."""


class Address(Spec):
    """Where a state server is, and what it must be told to listen."""

    port: int
    token: str


class StateClient:
    def __init__(self, address: Address) -> None:
        self._headers = [(b"authorization", f"Bearer {address.token}".encode())]
        self._client = flight.FlightClient(f"grpc://127.0.0.1:{address.port}")

    def close(self) -> None:
        self._client.close()

    def call(self, what: str, **body: Any) -> Any:
        with _errors():
            asked = flight.Action(what, json.dumps(body).encode())
            (answer,) = self._client.do_action(asked, self._within(CALL_S))
        return json.loads(answer.body.to_pybytes())

    def gaps(self, ends: dict[str, int]) -> list[Range]:
        return [Range(*one) for one in self.call("gaps", ends=ends)]

    def see(self, range: Range, newest: int) -> int:
        found: int = self.call("see", range=_listed(range), newest=newest)
        return found

    def judged(self, range: Range, counts: Counts) -> None:
        self.call("judged", range=_listed(range), counts=asdict(counts))

    def put(self, range: Range, partials: pa.Table) -> bool:
        """Whether it was new."""
        with _errors():
            if partials.nbytes > LONG_BYTES:
                list(self._client.do_action(flight.Action(PROVE, b""), self._within(CALL_S)))
            command = json.dumps({"range": _listed(range)})
            descriptor = flight.FlightDescriptor.for_command(command)
            writer, reader = self._client.do_put(descriptor, partials.schema, self._within(MOVE_S))
            with writer:
                writer.write_table(partials)
                writer.done_writing()
                answer = reader.read()
        return bool(json.loads(answer.to_pybytes()))

    def results(self, after: int, upto: int) -> pa.Table:
        return self._get(what="results", after=after, upto=upto)

    def state(self) -> tuple[pa.Table, dict[str, Any]]:
        table = self._get(what="state")
        return table, json.loads(table.schema.metadata[b"status"])

    def _get(self, **body: Any) -> pa.Table:
        with _errors():
            ticket = flight.Ticket(json.dumps(body))
            return self._client.do_get(ticket, self._within(MOVE_S)).read_all()

    def _within(self, seconds: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers)


def _listed(range: Range) -> list[Any]:
    return [range.partition, range.begin, range.end]


@contextmanager
def _errors() -> Iterator[None]:
    """What the server raised, or SiteError if it is gone."""
    try:
        yield
    except flight.FlightInternalError as error:
        raise _said(error) from error
    except (flight.FlightError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise SiteError(f"the state server does not answer ({reason})") from error


def _said(error: flight.FlightInternalError) -> AnabranchError:
    text = str(error)
    begin, end = text.find("{"), text.rfind("}")
    try:
        return from_dict(json.loads(text[begin : end + 1]))
    except ValueError:
        reason = text.partition("\n")[0]
        return SiteError(f"the state server failed ({reason})")
