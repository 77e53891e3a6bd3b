"""`python -m kilonova` is the program `kilonova`."""

from kilonova.cli.main import main

main()
