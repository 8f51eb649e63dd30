"""Profile of a training: host (measured), devices (simulated), and source lines."""
