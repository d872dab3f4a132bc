"""`python -m hawk.middleman`: one middleman for a HAWK_HOME, until a signal."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from hawk.config.settings import load_settings
from hawk.errors import HawkError
from hawk.middleman.presence import lock_file
from hawk.store.locks import hold

DRAIN = 600.0
"""Seconds that requests on their way have to end after SIGTERM."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="hawk.middleman", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free one")
    parser.add_argument(
        "--drain", type=float, default=DRAIN, help="seconds that open requests have at the end"
    )
    parser.add_argument(
        "--embedded", action="store_true", help="belongs to the local server: ends when nobody needs it"
    )
    parser.add_argument(
        "--database-url",
        default=os.environ.get("HAWK_MIDDLEMAN_DATABASE_URL"),
        help="PostgreSQL through which several share limits and budgets; none: alone",
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("aiohttp").setLevel(
        logging.CRITICAL
    )  # it would log a malformed line whole, its token too
    os.umask(0o077)
    try:
        settings = load_settings()
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = hold(lock_file(settings.home))
        if lock is None:
            return 0
        from hawk.middleman.serve import (
            serve,  # after the lock is taken: whoever waits for it must see that it comes
        )

        return asyncio.run(serve(settings, options, os.environ))
    except HawkError as ex:
        print(f"hawk middleman: {ex.render()}", file=sys.stderr)  # noqa: T201
        return ex.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
