"""Functions of the C extension."""

from _typeshed import ReadableBuffer, WriteableBuffer

def interface() -> int:
    """Return the number of the interface that the file was built with."""

def level() -> int:
    """Return the index in ``LEVELS`` of the highest level that this processor supports."""

def resample(
    source: ReadableBuffer | object,
    channels: int,
    old: tuple[int, int],
    box: tuple[float, float, float, float],
    size: tuple[int, int],
    crop: tuple[int, int, int, int],
    filter: int,
    vertical_first: bool,
    level: int,
    table: ReadableBuffer | None,
    out: WriteableBuffer,
    /,
) -> None:
    """Write a crop of the resized box of an image, with its levels or their values in a table.

    Args:
        source: height x width x ``channels`` bytes; or the capsule ``arrow_array`` of the Arrow C data interface that
            holds them.
        channels: 1, or 4 of which the last is not used.
        old, size: (width, height) of the source and of its resized box, in pixels.
        box, crop: left, top, right, bottom. What of the crop exceeds the resized box is black.
        filter: number of one of Pillow's filters, ``PIL.Image.Resampling``; not ``NEAREST``.
        vertical_first: whether the vertical axis is resized first.
        level: of the loops, at most :func:`level`.
        table: 3 x 256 values of 2 or 4 bytes, one row per channel.
        out: C-contiguous. With a table, 3 x height x width values; grey is looked up for all three channels. Without,
            height x width x 3 bytes, or height x width for one channel.

    Raises ValueError if an argument is invalid or a size does not fit, and MemoryError.
    """
