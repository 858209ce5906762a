"""The HTTP API: everything that the command line does, as JSON, with events as they happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from anabranch import __version__
from anabranch.errors import AnabranchError, ConfigError, ScriptError, SiteError, TooMany
from anabranch.face.access import READS
from anabranch.face.api_page import api_page
from anabranch.face.metrics import system_exposition
from anabranch.face.model import QueryView, Snapshot
from anabranch.face.snapshot import delta
from anabranch.face.stories import Event, Story, stories
from anabranch.face.system import System
from anabranch.link.message import plain
from anabranch.site.http.metrics import CONTENT_TYPE, site_exposition

NAME = Path(max_length=200, description="A stream or query, by its name.")
STREAM_TYPE = "text/event-stream"


class Statements(BaseModel):
    text: str = Field(max_length=1_000_000, description="One or more statements, each ends with ;")


class MoveTo(BaseModel):
    site: str = Field(max_length=200)


class ReplanBody(BaseModel):
    dry_run: bool = Field(default=True, description="Change nothing, only say what would move.")


class AnswerBody(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    kind: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Invitation(BaseModel):
    invitation: str


class ScrapeTarget(BaseModel):
    targets: tuple[str, ...]
    labels: dict[str, str]


class Problem(BaseModel):
    """What is wrong, where, and what to do about it."""

    kind: str
    message: str
    place: str = ""
    remedy: str = ""
    excerpt: str = ""


def make_app(system: System) -> FastAPI:
    app = FastAPI(
        title="Anabranch",
        version=__version__,
        description="One virtual stream system over many Spark sites.",
        docs_url=None,
        openapi_url="/api/openapi.json",
        redoc_url=None,
    )
    app.add_exception_handler(AnabranchError, _problem)
    app.include_router(_health(system))
    app.include_router(_looking(system), prefix="/api")
    app.include_router(_events(system), prefix="/api")
    app.include_router(_changing(system), prefix="/api")

    @app.get("/api/docs", response_class=HTMLResponse, include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(api_page(app.openapi()))

    return app


async def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AnabranchError)
    code = 400 if isinstance(error, ScriptError | ConfigError) else 409
    code = 503 if isinstance(error, SiteError) else code
    code = 429 if isinstance(error, TooMany) else code
    return JSONResponse(error.to_dict(), status_code=code)


PROBLEMS: dict[int | str, dict[str, object]] = {
    400: {"model": Problem, "description": "The request asks for what cannot be."},
    401: {"description": "Wrong or missing token."},
    403: {"description": "A reader's token."},
    409: {"model": Problem, "description": "The system is in no state to do that now."},
    429: {"model": Problem, "description": "There are as many of these at once as there may be."},
    503: {"model": Problem, "description": "A site that is needed does not answer."},
}


def _health(system: System) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/health")
    def health() -> dict[str, str]:
        """The coordinator's process is there."""
        return {"status": "ok"}

    @router.get("/ready", responses={503: {"description": "Some site is not up."}})
    def ready() -> JSONResponse:
        """Every site that is known is up."""
        sites = system.watch.now.sites
        well = bool(sites) and all(one.state == "up" for one in sites)
        return JSONResponse({"ready": well}, status_code=200 if well else 503)

    return router


def _looking(system: System) -> APIRouter:
    router = APIRouter(tags=["looking"], responses={401: PROBLEMS[401]})

    @router.get("/system")
    def system_now() -> Snapshot:
        """The whole system as it was at most a second ago."""
        return system.watch.now

    @router.get("/queries/{name}", responses={400: PROBLEMS[400]})
    def query(name: Annotated[str, NAME]) -> QueryView:
        """One query: rates, latency, protection, what its clauses promise."""
        query = system.watch.now.query(name)
        if query is None:
            raise ConfigError(f"there is no query '{name}'")
        return query

    @router.get("/queries/{name}/explain", responses=PROBLEMS)
    def explain_query(name: Annotated[str, NAME]) -> AnswerBody:
        """How it runs, and why so."""
        return AnswerBody.model_validate(system.explain_query(name))

    @router.get("/history")
    def history(seconds: Annotated[int, Query(ge=1, le=600)] = 60) -> list[Snapshot]:
        """The last moments, oldest first."""
        return list(system.watch.history)[-seconds:]

    @router.get("/network")
    def network() -> dict[str, object]:
        """Latencies between the sites as measured, all samples that are kept."""
        return {"samples": plain(system.coordinator.network_samples())}

    @router.get("/timeline")
    def timeline() -> list[Story]:
        """What happened, one failure as one story, newest first."""
        return stories(system.watch.events)

    @router.get("/report", response_class=HTMLResponse)
    def report() -> HTMLResponse:
        """The last ten minutes as one page that needs no server."""
        return HTMLResponse(system.report())

    @router.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> PlainTextResponse:
        """The same for Prometheus."""
        return PlainTextResponse(system_exposition(system.watch.now), media_type=CONTENT_TYPE)

    @router.get(
        "/sites/{name}/metrics", response_class=PlainTextResponse, responses={400: PROBLEMS[400]}
    )
    def site_metrics(name: Annotated[str, NAME]) -> PlainTextResponse:
        """What the site itself would say, from its last heartbeat."""
        return PlainTextResponse(site_exposition(system.site_report(name)), media_type=CONTENT_TYPE)

    @router.get("/targets")
    def targets() -> list[ScrapeTarget]:
        """The sites' own HTTP ports, for Prometheus' `http_sd_configs`."""
        targets = [
            (one.name, one.http.partition("://")[2].rstrip("/"))
            for one in system.watch.now.sites
            if one.http
        ]
        return [ScrapeTarget(targets=(at,), labels={"site": name}) for name, at in targets]

    return router


def _events(system: System) -> APIRouter:
    router = APIRouter(tags=["following"], responses=PROBLEMS)

    @router.get("/events", response_class=StreamingResponse)
    async def events(
        request: Request,
        after: Annotated[int, Query(ge=0, description="Events with larger numbers.")] = 0,
        count: Annotated[int | None, Query(ge=1, description="End after so many moments.")] = None,
    ) -> StreamingResponse:
        """Server-sent events: `event` for what happened, `system` for the first picture, and
        `delta` for what of it has changed since."""
        moments = _moments(system, _client(request), after, count)
        first = await anext(moments)
        assert first == ""
        return StreamingResponse(moments, media_type=STREAM_TYPE)

    @router.get("/tail/{name}", response_class=StreamingResponse)
    async def tail(
        request: Request,
        name: Annotated[str, NAME],
        where: Annotated[
            str | None, Query(max_length=200, description="Only rows that contain this text.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=100_000, description="End after so many.")] = 1000,
        timeout_s: Annotated[float, Query(gt=0, le=3600)] = 60.0,
    ) -> StreamingResponse:
        """The stream's tuples from now on, one `row` event each."""
        rows = _tail(system, _client(request), name, where, limit, timeout_s)
        first = await anext(rows)
        assert first == ""
        return StreamingResponse(rows, media_type=STREAM_TYPE)

    return router


def _changing(system: System) -> APIRouter:
    router = APIRouter(tags=["changing"], responses=PROBLEMS)

    @router.post("/statements")
    def statements(body: Statements) -> list[AnswerBody]:
        """Check all of them, then do them; if one is wrong, nothing is done."""
        return [AnswerBody.model_validate(one) for one in system.execute(body.text)]

    @router.post("/explain")
    def explain(request: Request, body: Statements) -> AnswerBody:
        """How one SELECT or CREATE QUERY would run, or a named query does. Changes nothing. For a
        reader's token: how a named query runs, by what is known of it."""
        asks_sites = READS not in request.scope
        return AnswerBody.model_validate(system.explain(body.text, asks_sites=asks_sites))

    @router.post("/queries/{name}/move")
    def move(name: Annotated[str, NAME], body: MoveTo) -> dict[str, str]:
        """Run it at another site from now on; nothing is lost or repeated."""
        return {"was_at": system.move(name, body.site)}

    @router.post("/replan")
    def replan(body: ReplanBody) -> dict[str, object]:
        """Place again what runs, by the network as it is now; or only say what would move."""
        return system.coordinator.replan(dry_run=body.dry_run).to_dict()

    @router.post("/sites/{name}/kill")
    def kill(name: Annotated[str, NAME]) -> dict[str, int]:
        """End a site's process as a failure would: to see what then happens."""
        return {"killed": system.kill(name)}

    @router.post("/invitations")
    def invite() -> Invitation:
        """What lets one browser in, once: open the dashboard's address with `?invitation=…`."""
        return Invitation(invitation=system.sessions.invite())

    @router.post("/stop")
    def stop() -> dict[str, bool]:
        """Stop the whole system, as `anabranch down` does."""
        system.stop()
        return {"stopping": True}

    return router


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def _moments(
    system: System, client: str, after: int, count: int | None
) -> AsyncIterator[str]:
    """The moments as server-sent events. The first text is empty and comes once there is a seat."""
    with system.followers.taken(client):
        async with system.watch.subscribe() as queue:
            yield ""
            for event in system.watch.events:
                if event.number > after:
                    yield _event_text(event)
            shown = system.watch.now.model_dump(mode="json")
            yield _sse("system", shown)
            while count is None or count > 0:
                moment = await queue.get()
                for event in moment.events:
                    yield _event_text(event)
                new = moment.snapshot.model_dump(mode="json")
                yield _sse("delta", delta(shown, new))
                shown = new
                count = None if count is None else count - 1


def _event_text(event: Event) -> str:
    return f"id: {event.number}\n{_sse('event', event.model_dump(mode='json'))}"


async def _tail(
    system: System, client: str, name: str, where: str | None, limit: int, timeout_s: float
) -> AsyncIterator[str]:
    """The rows as server-sent events. The first text is empty and comes once the stream is known,
    so that an unknown stream is an error of the request.
    """
    opened = system.tail(name, client)
    reader = await system.in_tail(opened.__enter__)
    try:
        yield ""
        end = asyncio.get_running_loop().time() + timeout_s
        while limit > 0 and (left := end - asyncio.get_running_loop().time()) > 0:
            rows = await system.in_tail(system.rows_of, reader, limit, min(left, 1.0))
            if rows is None:
                break
            for row in rows[:limit]:
                text = json.dumps(row, default=str)
                if where is None or where in text:
                    limit -= 1
                    yield f"event: row\ndata: {text}\n\n"
            if not rows:
                yield ": nothing yet\n\n"
    finally:
        await system.in_tail(opened.__exit__, None, None, None)


def _sse(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
