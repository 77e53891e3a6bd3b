"""The processes of a cloud. Each role is a command; its file says what the process starts, and in which order.

`kilonova.cli.main` names the commands and loads one when it is used; a role imports what it needs when it runs, so that
`kilonova serve --help` does not wait for a database.
"""
