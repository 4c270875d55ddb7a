"""Runs migrations on the connection that `store/admin.py` hands over, in its transaction."""

from alembic import context

from turnkeeper.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
