"""The text of a device as a script sees it: it shows ``sdaa:0``, and is compared and searched as ``cuda:0`` too."""

from __future__ import annotations

from typing import Any, SupportsIndex


class DeviceText(str):
    """``str(device)`` for code that is neither torch's nor ours.

    A script asks ``"cuda" in str(device)`` to choose its branch, and prints the same text to tell where it runs. Both
    names have four letters, so positions agree.
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
        return hash(self._cuda)  # a script's table has CUDA's names

    def __str__(self) -> str:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[str], tuple[str]]:
        return str, (self._cuda,)  # a file is to be read where there is no torch_sdaa too

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and (str.__contains__(self, part) or part in self._cuda)

    def __getitem__(self, at: SupportsIndex | slice) -> str:
        return DeviceText(str.__getitem__(self, at))

    def startswith(self, prefix: str | tuple[str, ...], *at: Any) -> bool:
        """Return whether either name begins so."""
        return str.startswith(self, prefix, *at) or self._cuda.startswith(prefix, *at)

    def find(self, part: str, *at: Any) -> int:
        """Return where either name has a part, or -1."""
        return max(str.find(self, part, *at), self._cuda.find(part, *at))

    def index(self, part: str, *at: Any) -> int:
        """Return where either name has a part."""
        return self._cuda.index(part, *at) if part in self._cuda else str.index(self, part, *at)

    def count(self, part: str, *at: Any) -> int:
        """Return how often the name that has a part has it."""
        return max(str.count(self, part, *at), self._cuda.count(part, *at))

    def split(self, *how: Any, **named: Any) -> list[str]:
        """Return the parts, which are compared as CUDA's too."""
        return [DeviceText(part) for part in str.split(self, *how, **named)]

    def partition(self, separator: str) -> tuple[str, str, str]:
        """Return what is before a separator, which is compared as CUDA's too, and the rest."""
        first, found, rest = str.partition(self, separator)
        return DeviceText(first), found, rest

    def replace(self, old: str, new: str, *count: Any) -> str:
        """Replace a part of the name that has it."""
        return self._cuda.replace(old, new, *count) if old in self._cuda else str.replace(self, old, new, *count)

    def removeprefix(self, prefix: str) -> str:
        """Take the beginning of either name away."""
        return (self._cuda if self._cuda.startswith(prefix) else str(self)).removeprefix(prefix)

    def lower(self) -> str:
        """Return the same, which has no capitals."""
        return self
