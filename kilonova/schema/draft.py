"""`python -m kilonova.schema.draft ROLE MESSAGE` drafts the next revision from the tables, to be read and
corrected by hand. Until the first release `--first` rewrites revision 0001 instead."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from alembic import command
from sqlalchemy import MetaData, create_engine

from kilonova.schema.render import configure, render_upgrade, versions_of
from kilonova.schema.revisions import REVISIONS, ROLES


def metadata_of(role: str) -> MetaData:
    metadata: MetaData = importlib.import_module(f"kilonova.schema.tables.{role}").metadata
    return metadata


def draft(role: str, message: str, *, first: bool) -> Path:
    number = 1 if first else len(REVISIONS[role]) + 1
    if first:
        for old in versions_of(role).glob("0001_*.py"):
            old.unlink()
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        if not first:
            connection.connection.driver_connection.executescript(render_upgrade(role, "sqlite", None))  # type: ignore[union-attr]
        config = configure(role, connection=connection, metadata=metadata_of(role))
        config.set_main_option("file_template", f"{number:04}_%%(slug)s")
        revision = f"{role}_{number:04}"
        command.revision(config, message, autogenerate=True, rev_id=revision, version_path=str(versions_of(role)))
    path = next(versions_of(role).glob(f"{number:04}_*.py"))
    path.write_text(_clean(path.read_text(), metadata_of(role)))
    return path


def _clean(text: str, metadata: MetaData) -> str:
    text = re.sub(r" *# ###.*\n", "", text).replace(", unique=False", "")
    for table in metadata.tables.values():
        for column in table.columns:
            if getattr(column.name, "quote", None):  # Alembic does not render SQLAlchemy's quote option
                text = text.replace(f"sa.Column('{column.name}', ", f"sa.Column('{column.name}', quote=True, type_=")
    return text


if __name__ == "__main__":
    if "--first" in sys.argv:
        for each in ROLES:
            print(draft(each, "first", first=True))
    else:
        print(draft(sys.argv[1], " ".join(sys.argv[2:]), first=False))
