"""Module that starts a persistent thread on import, so that the process cannot be forked."""

import threading


def start() -> None:
    """Start a thread that never ends."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
