"""The Alembic environment. Revisions are rendered to SQL, and the engine's own driver runs it (store/upgrade.py): so a
revision may not read the database, and needs no driver that Alembic knows. With a connection (drafting, comparing) it
goes online."""

from alembic import context

options = context.config.attributes

if "connection" in options:
    context.configure(connection=options["connection"], target_metadata=options["metadata"], render_as_batch=False)
else:
    # store/upgrade.py puts its own transaction around the text.
    context.configure(dialect_name=options["dialect"], literal_binds=True, transactional_ddl=False)
context.run_migrations()
