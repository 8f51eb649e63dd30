"""Running a case: its steps, each in a process that leaves nothing behind."""
