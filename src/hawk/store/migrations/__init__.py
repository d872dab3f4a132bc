"""Alembic's scripts, inside the package so that an installed Hawk can upgrade its own database.

`HEAD` is the newest revision: a database that is at it needs no Alembic at start. A test holds it to the scripts.
"""

from pathlib import Path

MIGRATIONS = Path(__file__).parent
HEAD = "0002"
