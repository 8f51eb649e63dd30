"""Recording of a training's operators: dumps, overflow check, replay, and comparison of two runs."""
