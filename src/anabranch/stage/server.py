"""The state server: a process that holds a stage's state for the Spark tasks of its site.

Run by the site as `python -m anabranch.stage.server`. Its first line of input says what to
serve; it answers with its port, and ends when its input does, that is, with the site.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pydantic import Base64Bytes

from anabranch.errors import TaskError
from anabranch.link.gate import Credentials, Gate, Handler
from anabranch.link.message import Message
from anabranch.plan.spec import Spec
from anabranch.plan.stage import Stage
from anabranch.plan.windows import TimePanes
from anabranch.stage.global_database import GlobalDatabase, ServerBackup
from anabranch.stage.messages import (
    AwaitWindows,
    BeginPartitions,
    CountRange,
    EndPartitions,
    FindGaps,
    GetState,
    GetStatus,
    GetWindows,
    PutRange,
    ReleaseWindows,
    SaveCheckpoint,
    SeeRange,
    TellEnds,
    WriteCheckpoint,
)
from anabranch.stage.partials import PartialsSql
from anabranch.stage.service import StateService
from anabranch.stage.store import StateStore
from anabranch.window.panes import Grid


class ServeState(Spec):
    """A server's orders. `sample` is the Arrow schema of the tuples to be aggregated; `token` is
    what callers must know.
    """

    stage: Stage
    sample: Base64Bytes
    folder: str | None
    token: str


def serve(serving: ServeState) -> Gate:
    handlers = {kind: _told(handler) for kind, handler in _handlers(_service(serving)).items()}
    return Gate("127.0.0.1:0", Credentials(serving.token), handlers)


def _service(serving: ServeState) -> StateService:
    panes = serving.stage.aggregate.panes
    assert isinstance(panes, TimePanes)
    sample = pa.ipc.read_schema(pa.py_buffer(serving.sample))
    folder = Path(serving.folder) if serving.folder else None
    store = StateStore(PartialsSql(serving.stage), sample, folder, serving.stage.memory)
    backup = _backup(serving.stage, store) if serving.stage.backup else None
    grid = Grid(panes.width_us, panes.slide_us)
    return StateService(store, grid, serving.stage.input.lateness_us, backup)


def _backup(stage: Stage, store: StateStore) -> ServerBackup:
    return ServerBackup(GlobalDatabase(stage, store.columns), stage.part, stage.parts, store)


def _handlers(service: StateService) -> dict[type[Message[Any]], Handler]:
    def put(request: PutRange, partials: pa.RecordBatchReader) -> bool:
        some = len(partials.schema) > 1  # a range of which nothing was left has no columns
        return service.put(request.range, partials if some else None)

    return {
        BeginPartitions: lambda asked: service.begin(asked.starts),
        EndPartitions: lambda asked: service.end(asked.goals),
        TellEnds: lambda asked: service.ends(asked.ends),
        FindGaps: lambda asked: service.gaps(asked.ends),
        SeeRange: lambda asked: service.see(asked.range, asked.newest),
        CountRange: lambda asked: service.judged(asked.range, asked.counts),
        PutRange: put,
        AwaitWindows: lambda asked: service.due(asked.after, asked.wait_s),
        GetWindows: lambda asked: (service.results(asked.after, asked.upto), None),
        GetState: lambda asked: service.state(),
        ReleaseWindows: lambda asked: service.release(asked.upto, asked.given),
        WriteCheckpoint: lambda asked: service.checkpoint(),
        SaveCheckpoint: lambda asked: service.back_up(),
        GetStatus: lambda asked: service.status(),
    }


def _told(handler: Handler) -> Handler:
    """The handler, with errors that a user can do something about turned into TaskErrors."""

    def told(*asked: Any) -> Any:
        try:
            return handler(*asked)
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            reason = str(error).partition("\n")[0].removeprefix("Conversion Error: ")
            raise TaskError(f"an aggregate exceeds its type ({reason})") from error

    return told


def main() -> None:
    gate = serve(ServeState.model_validate_json(sys.stdin.readline()))
    print(gate.port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
