"""What a package does that cannot be forked: it starts a thread that stays."""

import threading


def start() -> None:
    """Start a thread that waits for ever."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
