"""What loggers say, whatever an eval in this process has set up for logging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def heard(caplog: pytest.LogCaptureFixture, name: str) -> Iterator[None]:
    """What a logger and those below it say reaches `caplog`."""
    logger = logging.getLogger(name)
    for known in list(logging.root.manager.loggerDict):
        if known.startswith(name):
            logging.getLogger(known).disabled = False
    before = logger.propagate, logger.level, logging.root.manager.disable
    logging.disable(logging.NOTSET)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(caplog.handler)
    try:
        yield
    finally:
        logger.removeHandler(caplog.handler)
        logger.propagate, logger.level = before[:2]
        logging.disable(before[2])
