"""Alembic's entry: runs the scripts on the connection that `hawk.store.database.migrate` holds."""

from alembic import context

from hawk.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
context.run_migrations()
