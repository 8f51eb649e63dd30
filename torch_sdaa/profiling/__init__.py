"""Where a training's time goes: what the host did, what the devices did (simulated), and which line asked for it."""
