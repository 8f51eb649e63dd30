"""Work without garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Switch automatic garbage collections off, for work that creates many objects and hardly any cyclic ones.

    Objects without cycles are freed as always. Several threads may be inside: collections are on again when the thread
    that switched them off leaves.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
