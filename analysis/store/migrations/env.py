"""Alembic's entry: runs migrations on the connection that the store hands over."""

from alembic import context

from analysis.store.schema import metadata

connection = context.config.attributes["connection"]
# SQLite changes tables by copying them, which Alembic calls batch mode.
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
