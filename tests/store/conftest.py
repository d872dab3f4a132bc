from tests.bridge.conftest import finished, short_root
from tests.store.databases import database_url, postgres

__all__ = ["database_url", "finished", "postgres", "short_root"]
