"""The schema of the databases: tables/, and the Alembic revisions of each role (control, cell, placement).

revisions.py lists the revisions; env.py is run by Alembic for all roles; store/upgrade.py runs the rendered SQL.
"""
