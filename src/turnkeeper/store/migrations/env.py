"""Runs migrations on the connection that `store/admin.py` hands over, in its transaction."""

from alembic import context

# Without the tables' metadata: its naming convention would rename what a migration has named.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
