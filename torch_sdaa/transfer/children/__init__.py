"""A folder that the runner puts on ``PYTHONPATH`` of the processes that a script starts."""
