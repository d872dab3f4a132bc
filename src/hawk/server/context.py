"""What routes and services share: made once, in the app's lifespan."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from hawk.config.settings import Settings
from hawk.engine.protocol import Engine
from hawk.server.services.attempts import Reports
from hawk.server.services.deletions import Deletions
from hawk.server.services.feeds import Feeds
from hawk.server.services.idle import Activity
from hawk.server.services.links import LinkHub
from hawk.server.services.logs import LogReader
from hawk.server.services.middleman import Middleman
from hawk.server.services.mirror import Mirror
from hawk.server.services.registry import Registry
from hawk.server.services.spans import SpanCollector
from hawk.server.services.submissions import Submissions
from hawk.server.services.timeline_totals import EvalSetTimelines
from hawk.server.services.timelines import Timelines
from hawk.server.services.uploads import Uploads
from hawk.store.database import Database


@dataclass
class Context:
    """The server's parts.

    Attributes:
        token: What a request must bear.
        user: Whose it is.
        place: Which disk this server sees (`hawk.config.place`); None: nobody else sees it.
        mirror: Keeps copies of run directories; None: they are on this machine only.
        spans: Fetches spans of middlemen that are elsewhere; None: there are none.
        stopping: Set when the server is about to end: streams end, loops stop.
        threads: For work that may block long (launching, killing); the event loop's own pool stays free.
    """

    settings: Settings
    token: str
    user: str
    place: str | None
    database: Database
    engine: Engine
    registry: Registry
    feeds: Feeds
    submissions: Submissions
    deletions: Deletions
    uploads: Uploads
    middleman: Middleman
    links: LinkHub
    activity: Activity
    logs: LogReader
    reports: Reports
    timelines: Timelines
    eval_set_timelines: EvalSetTimelines
    stopping: asyncio.Event
    mirror: Mirror | None = None
    spans: SpanCollector | None = None
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "hawk-work"))


def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(_context)]
"""A route's parameter that takes the context."""
