"""One trainer, its tasks, and whole runs."""
