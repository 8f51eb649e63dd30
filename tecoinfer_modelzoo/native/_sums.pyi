"""Functions of the C extension that compares tensors."""

from _typeshed import ReadableBuffer

def interface() -> int:
    """Return the number of the interface that the file was built with."""

def level() -> int:
    """Return the index in ``LEVELS`` of the highest level that this processor supports."""

def compare(
    value: ReadableBuffer, reference: ReadableBuffer, threshold: float, top: float, level: int, /
) -> tuple[float, ...] | None:
    """Return sums and ranges of a tensor ``v`` and its reference ``r``, all in float64; ``None`` if one is not finite.

    In this order: sum (v-r)^2, sum |v-r|, sum |r|, sum r^2, sum v^2, sum v*r, sum and maximum of |v-r| / |r| (|v-r|
    where |r| is at most ``threshold``), minimum and maximum of v, of r, number of |v| >= ``top``, number of v = 0 where
    r is not 0.

    Args:
        value, reference: C-contiguous float32 arrays of one size, which is not 0.
        level: of the loops, at most :func:`level`.

    Raises ValueError if they are not.
    """
