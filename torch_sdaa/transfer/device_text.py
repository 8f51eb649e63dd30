"""Text of a device for a script: printed as ``sdaa:0``, and compared and searched also as ``cuda:0``."""

from __future__ import annotations

from typing import Any, SupportsIndex


class DeviceText(str):
    """``str(device)`` for code outside of torch and this package.

    Scripts test ``"cuda" in str(device)`` to select a branch, and print the same text. Both names have four letters, so
    that positions agree.
    """

    __slots__ = ()

    @property
    def _cuda(self) -> str:
        return str.replace(self, "sdaa", "cuda", 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and (str.__eq__(self, other) or self._cuda == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._cuda)  # tables of scripts have CUDA's names

    def __str__(self) -> str:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[str], tuple[str]]:
        return str, (self._cuda,)  # readable without torch_sdaa

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and (str.__contains__(self, part) or part in self._cuda)

    def __getitem__(self, at: SupportsIndex | slice) -> str:
        return DeviceText(str.__getitem__(self, at))

    def startswith(self, prefix: str | tuple[str, ...], *at: Any) -> bool:
        """Return whether either name starts with a prefix."""
        return str.startswith(self, prefix, *at) or self._cuda.startswith(prefix, *at)

    def find(self, part: str, *at: Any) -> int:
        """Return the position of a part in either name, or -1."""
        return max(str.find(self, part, *at), self._cuda.find(part, *at))

    def index(self, part: str, *at: Any) -> int:
        """Return the position of a part in either name."""
        return self._cuda.index(part, *at) if part in self._cuda else str.index(self, part, *at)

    def count(self, part: str, *at: Any) -> int:
        """Return the number of occurrences in either name, the larger one."""
        return max(str.count(self, part, *at), self._cuda.count(part, *at))

    def split(self, *how: Any, **named: Any) -> list[str]:
        """Return the parts, which also compare like CUDA's."""
        return [DeviceText(part) for part in str.split(self, *how, **named)]

    def partition(self, separator: str) -> tuple[str, str, str]:
        """Return the parts around a separator; the first also compares like CUDA's."""
        first, found, rest = str.partition(self, separator)
        return DeviceText(first), found, rest

    def replace(self, old: str, new: str, *count: Any) -> str:
        """Replace a part in the name that contains it."""
        return self._cuda.replace(old, new, *count) if old in self._cuda else str.replace(self, old, new, *count)

    def removeprefix(self, prefix: str) -> str:
        """Remove a prefix of either name."""
        return (self._cuda if self._cuda.startswith(prefix) else str(self)).removeprefix(prefix)

    def lower(self) -> str:
        """Return the same text, which is lower case."""
        return self
