"""Run by alembic on the connection that `gdscore.monitor.database.migrate` gives it."""

from alembic import context

from gdscore.monitor.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by making it anew
    transaction_per_migration=False,
)
context.run_migrations()
