"""Stories: the file, the player, the verbs of a script, the watcher that writes the log, the scene at the end."""
