"""The state server: a process that holds a stage's state for the Spark tasks of its site.

Run by the site as `python -m anabranch.stage.server`. Its first line of input says what to
serve; it answers with its port, and ends when its input does, that is, with the site.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as flight
from pydantic import Base64Bytes

from anabranch.errors import AnabranchError, TaskError
from anabranch.link.door import PROVE, Door, TokenCheck
from anabranch.plan.spec import Spec
from anabranch.plan.stage import Stage
from anabranch.plan.windows import TimePanes
from anabranch.stage.backup import Backup
from anabranch.stage.global_database import GlobalDatabase
from anabranch.stage.offsets import Range
from anabranch.stage.partials import PartialsSql
from anabranch.stage.service import Counts, StateService
from anabranch.stage.store import Store
from anabranch.window.panes import Grid


class Serving(Spec):
    """What a server is told. `sample` is the Arrow schema of the tuples to be aggregated; `token`
    is what callers must know."""

    stage: Stage
    sample: Base64Bytes
    folder: str | None
    token: str


class StateServer(flight.FlightServerBase):  # type: ignore[misc]  # Arrow says no types
    def __init__(self, service: StateService, token: str) -> None:
        super().__init__("grpc://127.0.0.1:0", middleware={"token": TokenCheck(token)})
        self._service = service
        self._door = Door(self.port)

    def do_put(
        self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any
    ) -> None:
        body = self._read(context, descriptor.command)
        with _told():
            some = len(reader.schema) > 1  # a range of which nothing was left has no columns
            new = self._service.put(Range(*body["range"]), reader.to_reader() if some else None)
        writer.write(pa.py_buffer(json.dumps(new).encode()))

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        body = self._read(context, ticket.ticket)
        with _told():
            if body["what"] == "results":
                return flight.RecordBatchStream(self._service.results(body["after"], body["upto"]))
            table, status = self._service.state()
        metadata = {"status": json.dumps(status)}
        return flight.RecordBatchStream(table.replace_schema_metadata(metadata))

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        body = self._read(context, action.body or b"{}")
        if action.type == PROVE:
            return []
        with _told():
            answer = self._answer(action.type, body)
        return [json.dumps(answer).encode()]

    def _answer(self, what: str, body: dict[str, Any]) -> Any:
        service = self._service
        match what:
            case "begin":
                return service.begin(body["starts"])
            case "end":
                return service.end(body["goals"])
            case "ends":
                return service.ends(body["ends"])
            case "gaps":
                found = service.gaps(body["ends"])
                return [[one.partition, one.begin, one.end] for one in found]
            case "see":
                return service.see(Range(*body["range"]), body["newest"])
            case "judged":
                return service.judged(Range(*body["range"]), Counts(**body["counts"]))
            case "due":
                return service.due(body["after"], body["wait_s"])
            case "release":
                return service.release(body["upto"], body["given"])
            case "checkpoint":
                return service.checkpoint()
            case "back_up":
                return service.back_up()
            case "status":
                return service.status()
        raise TaskError(f"a state server has no action {what}")

    def _read(self, context: flight.ServerCallContext, data: bytes | pa.Buffer) -> dict[str, Any]:
        self._door.proved(context.peer())
        body: dict[str, Any] = json.loads(bytes(data))
        return body


class _told:
    """An error in here reaches the caller as one of ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, flight.FlightError):
            return
        if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException):
            reason = str(error).partition("\n")[0].removeprefix("Conversion Error: ")
            error = TaskError(f"an aggregate exceeds its type ({reason})")
        if not isinstance(error, AnabranchError):
            traceback.print_exception(error)
            error = TaskError(f"the state server failed ({type(error).__name__}: {error})")
        raise flight.FlightInternalError(json.dumps(error.to_dict()))


def serve(serving: Serving) -> StateServer:
    panes = serving.stage.aggregate.panes
    assert isinstance(panes, TimePanes)
    sample = pa.ipc.read_schema(pa.py_buffer(serving.sample))
    folder = Path(serving.folder) if serving.folder else None
    partials = PartialsSql(serving.stage)
    store = Store(partials, sample, folder, serving.stage.memory)
    backup = _backup(serving.stage, store) if serving.stage.backup else None
    grid = Grid(panes.width_us, panes.slide_us)
    service = StateService(store, grid, serving.stage.input.lateness_us, backup)
    return StateServer(service, serving.token)


def _backup(stage: Stage, store: Store) -> Backup:
    return Backup(GlobalDatabase(stage, store.columns), stage.part, stage.parts, store)


def main() -> None:
    server = serve(Serving.model_validate_json(sys.stdin.readline()))

    def leave() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=leave, daemon=True).start()
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
