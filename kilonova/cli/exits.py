"""The exit codes of the command line. 1 is a crash."""

DONE, USAGE, REFUSED, FAILED, TIMED_OUT, DIFFERENCES = 0, 2, 3, 4, 5, 6
