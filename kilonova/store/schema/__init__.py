"""The Alembic revisions, one line of them per role. env.py is shared; upgrade.py runs it."""
