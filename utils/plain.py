"""Values as JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def plain(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a value made of dicts with texts as keys, lists, and what ``leaf`` makes of anything else.

    Args:
        value: mappings, lists and tuples in one another; arrays and numbers of numpy become lists and plain numbers.
        leaf: says how a number, a text or whatever else is in there is written; NaN and infinities, which JSON lacks,
            are its business too.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, leaf) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, leaf) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist(), leaf)
    return leaf(value)
