"""The compiled extension, as ``C``; compiled on import if the cache has none for this torch."""

from __future__ import annotations

from typing import Any

from torch_sdaa.loading.build import load

C: Any = load()
