"""The application: its parts, its routes, and what happens when it starts and stops."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route

from hawk import __version__
from hawk.config.place import make_place
from hawk.config.settings import Settings
from hawk.config.token import current_user, ensure_token, token_user
from hawk.engine.engines import Engines
from hawk.engine.protocol import Engine
from hawk.link.tokens import link_key
from hawk.server import errors
from hawk.server.context import Context
from hawk.server.gate import Gate
from hawk.server.routes import (
    attempts,
    auth,
    bundle,
    diagnosis,
    eval_sets,
    fix,
    health,
    meta,
    monitoring,
    public_client,
    runners,
    sources,
    stacktrace,
    timeline,
    trace,
)
from hawk.server.services.attempts import Reports
from hawk.server.services.deletions import Deletions
from hawk.server.services.feeds import Feeds
from hawk.server.services.idle import Activity
from hawk.server.services.links import LinkHub
from hawk.server.services.logs import LogReader
from hawk.server.services.loops import Loops
from hawk.server.services.middleman import Middleman
from hawk.server.services.mirror import Mirror
from hawk.server.services.registry import Registry
from hawk.server.services.spans import SpanCollector, database_of_spans
from hawk.server.services.submissions import Submissions
from hawk.server.services.timeline_totals import EvalSetTimelines
from hawk.server.services.timelines import Timelines
from hawk.server.services.uploads import Uploads
from hawk.server.wire import install_openapi
from hawk.store import queries
from hawk.store.database import Database, open_database
from hawk.store.rundir import storage_error

ROUTERS = (
    health,
    auth,
    eval_sets,
    sources,
    monitoring,
    trace,
    stacktrace,
    diagnosis,
    fix,
    bundle,
    meta,
    timeline,
    attempts,
    public_client,
    runners,
)


def create_app(
    settings: Settings,
    engine: Engine | None = None,
    *,
    database: Database | None = None,
    loopback: bool = True,
    end: Callable[[], None] | None = None,
) -> FastAPI:
    """The application.

    Args:
        settings: Where things are kept.
        engine: Where jobs run; this machine, and a cluster for jobs that want one, when left out; made when the application starts.
        database: The index; opened when the application starts if left out. Closed with the application.
        loopback: It listens to this machine only, so that requests for other hosts are refused.
        end: Ends the server when it is idle; a signal to this process when left out.

    Raises:
        StorageError: The token or the root can't be read or made.
    """
    try:
        settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as ex:
        raise storage_error(settings.root, ex) from ex
    token = ensure_token(settings)
    activity = Activity()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context = await asyncio.to_thread(_build, settings, token, activity, engine, database)
        app.state.context = context
        loops = Loops(context, end or (lambda: os.kill(os.getpid(), signal.SIGTERM)))
        await loops.start()
        try:
            yield
        finally:
            stop_streams(app)
            await loops.stop()
            await asyncio.to_thread(_close, context)

    app = FastAPI(title="Hawk", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    for module in ROUTERS:
        app.include_router(module.router)
    methods = _methods(app)
    errors.install(app, methods)
    install_openapi(app)
    app.add_middleware(
        Gate,
        token=token,
        activity=activity,
        loopback=loopback,
        open_prefix=public_client.DOWNLOAD,
        methods=methods,
        admits=lambda job_id, token: app.state.context.links.admits(job_id, token),
    )
    return app


def _methods(app: FastAPI) -> errors.Methods:
    """Which methods a path knows; none where there is no such path."""
    everything = [*app.routes, *(route for module in ROUTERS for route in module.router.routes)]
    routes = [route for route in everything if isinstance(route, Route)]
    return lambda path: {
        method for route in routes if route.path_regex.match(path) for method in route.methods or ()
    }


def stop_streams(app: FastAPI) -> None:
    """End every stream: a graceful stop waits for open responses."""
    context: Context | None = getattr(app.state, "context", None)
    if context is not None:
        context.stopping.set()
        context.feeds.wake_all()


def _build(
    settings: Settings, token: str, activity: Activity, engine: Engine | None, database: Database | None
) -> Context:
    database = database or open_database(settings.database_url)
    if engine is None:
        engine = Engines(settings)
    stopping = asyncio.Event()
    registry = Registry(settings.root, database)
    feeds = Feeds(registry, engine, database, stopping)
    middleman = Middleman(settings)
    middleman.keep()
    links = _links(settings, engine)
    mirror = _mirror(settings, registry, database)
    user = token_user(token) or current_user()
    uploads = Uploads(settings.home, settings.root)
    return Context(
        settings=settings,
        token=token,
        user=user,
        place=make_place(settings.home),
        database=database,
        engine=engine,
        registry=registry,
        feeds=feeds,
        submissions=Submissions(settings, database, engine, registry, feeds, uploads, user),
        deletions=Deletions(database, engine, registry, feeds, middleman, uploads, mirror),
        uploads=uploads,
        middleman=middleman,
        links=links,
        activity=activity,
        logs=LogReader(),
        reports=Reports(registry, database),
        timelines=Timelines(registry, database, feeds),
        eval_set_timelines=EvalSetTimelines(registry, database, feeds),
        stopping=stopping,
        mirror=mirror,
        spans=_spans(settings),
    )


def _spans(settings: Settings) -> SpanCollector | None:
    """Who fetches spans of middlemen that don't see the run directories, where there may be such."""
    url = database_of_spans(settings)
    if url is None:
        return None
    collector = SpanCollector(url, settings.root)
    collector.start()
    return collector


def _links(settings: Settings, engine: Engine) -> LinkHub:
    links = LinkHub(settings.root, link_key(settings.home))
    if isinstance(engine, Engines):
        engine.attach(links)
    return links


def _mirror(settings: Settings, registry: Registry, database: Database) -> Mirror | None:
    """The copies in the bucket, if there is to be one; what this machine has lost is back when it returns."""
    if settings.bucket is None:
        return None
    from hawk.store.bucket import Bucket

    with database.read() as session:
        deleted, ended = queries.deleted(session), queries.finished(session)
    mirror = Mirror(Bucket(settings.bucket), settings.root, lambda: [job.job_id for job in registry.all()])
    back = mirror.restore(deleted)
    mirror.start((ended - deleted) | set(back))
    return mirror


def _close(context: Context) -> None:
    context.threads.shutdown(wait=True, cancel_futures=True)
    if context.spans is not None:
        context.spans.close()
    if context.mirror is not None:
        context.mirror.close()
    context.feeds.close()
    context.links.close()
    context.engine.close()
    context.middleman.close(in_use=bool(len(context.registry)))
    context.database.close()
