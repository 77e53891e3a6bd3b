"""`python -m kilonova` is the program `kilonova`."""

from kilonova.app import main

main()
