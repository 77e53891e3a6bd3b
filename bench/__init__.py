"""What Kilonova costs, measured: `make bench [ONLY=name]` prints a table and writes bench/results/NAME.json."""
