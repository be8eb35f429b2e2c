"""The ingest routes."""

import hashlib
from collections.abc import Awaitable, Callable

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from ingest import answers, batch, following, rebuild
from ingest.accepting import Answer, Write
from ingest.answers import NothingAccepted
from ingest.service import Ingest, Push, Route
from runtime import logs
from runtime.errors import ApiError
from store import payloads
from store.ingest_requests import NewRequest

log = logs.get(__name__)

PREFIX = "/wp-json/novel/v1/ingest"
STORIES = f"{PREFIX}/stories/bulk"
CHAPTERS = f"{PREFIX}/chapters/bulk"
REBUILD_STATS = f"{PREFIX}/rebuild-stats"
REQUEST = f"{PREFIX}/requests/{{request_id}}"
REQUEST_ITEMS = f"{REQUEST}/items"

REFUSED = Counter("novel_ingest_refused_total", "Requests to ingest routes that were refused", labelnames=("code",))

Handler = Callable[[Request], Awaitable[Response]]


def routes(ingest: Ingest) -> list[HttpRoute]:
    settings = ingest.settings
    stories = Route(permission="ingest:stories", max_bytes=settings.max_stories_bytes)
    chapters = Route(permission="ingest:chapters", max_bytes=settings.max_chapters_bytes)
    stats = Route(permission="ingest:stats", max_bytes=rebuild.MAX_BODY_BYTES, fills_queue=False)
    story_kind = batch.stories_kind()
    chapter_kind = batch.chapters_kind(content_encoding=settings.content_encoding)

    async def push_stories(request: Request) -> Response:
        return _json(await ingest.push_batch(request, story_kind, stories))

    async def push_chapters(request: Request) -> Response:
        return _json(await ingest.push_batch(request, chapter_kind, chapters))

    async def rebuild_stats(request: Request) -> Response:
        async def handle(push: Push) -> Answer:
            # However small a compressed body is, what it holds may not be.
            story_ids, payload = await ingest.stage.run(lambda: rebuild.read(push), size_bytes=rebuild.MAX_BODY_BYTES)
            sha256 = hashlib.sha256(payload).digest()
            identity = ingest.identity(push, rebuild.source_of(push.visitor.key), payloads.REBUILD_STATS, sha256)

            async def prepare() -> tuple[NewRequest, Write]:
                return await rebuild.prepare(push, story_ids, identity, pool=ingest.pool, stage=ingest.stage)

            return await ingest.once(push, identity, size=len(payload), prepare=prepare)

        return _json(await ingest.receive(request, stats, handle))

    async def show_request(request: Request) -> Response:
        visitor = await ingest.enter(request)
        async with ingest.pool.reading() as conn:
            state = await following.find(conn, request.path_params["request_id"], visitor)
        return _read(answers.state(state))

    async def show_items(request: Request) -> Response:
        visitor = await ingest.enter(request)
        async with ingest.pool.reading() as conn:
            state = await following.find(conn, request.path_params["request_id"], visitor)
            return _read(await following.items(conn, state, request))

    return [
        HttpRoute(STORIES, _counted(push_stories), methods=["POST"]),
        HttpRoute(CHAPTERS, _counted(push_chapters), methods=["POST"]),
        HttpRoute(REBUILD_STATS, _counted(rebuild_stats), methods=["POST"]),
        HttpRoute(REQUEST, _counted(show_request)),
        HttpRoute(REQUEST_ITEMS, _counted(show_items)),
    ]


def path_caps(ingest: Ingest) -> dict[str, int]:
    """The largest body, as sent, that each route reads. What is compressed is smaller than what it holds."""
    return {
        STORIES: ingest.settings.max_stories_bytes,
        CHAPTERS: ingest.settings.max_chapters_bytes,
        REBUILD_STATS: rebuild.MAX_BODY_BYTES,
    }


def _counted(handler: Handler) -> Handler:
    async def counted(request: Request) -> Response:
        try:
            return await handler(request)
        except NothingAccepted as error:
            REFUSED.labels(error.code).inc()
            return answers.nothing_accepted(error)
        except ApiError as error:
            REFUSED.labels(error.code).inc()
            key_id = request.headers.get("x-novel-key-id", "")[:64]
            log.info("ingest.refused", code=error.code, key_id=key_id, message=error.message)
            raise

    return counted


def _json(answer: Answer) -> Response:
    return Response(answer.body, answer.status, media_type="application/json")


def _read(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
