"""What the host gives engines: cores, files, a cache, and what is installed."""
