"""WAV files (RIFF) without a package: integers of 8 to 32 bits, floats, A-law and mu-law.

Follows the format's description (Microsoft and IBM, "Multimedia Programming Interface and Data Specifications 1.0",
1991; ``WAVE_FORMAT_EXTENSIBLE``, 2001) and ITU-T G.711. Unlike in other libraries, a truncated file is an error,
because half a recording would give a plausible but wrong answer.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import BinaryIO, NamedTuple

import numpy as np

from engine import Array, DataError

PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
"""Codes of the sample format in the chunk ``fmt``."""

KNOWN = {(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32), (FLOAT, 64), (ALAW, 8), (MULAW, 8)}
"""Supported formats and bits."""

OPEN_ENDED = 0x7FFF0000
"""Minimum of sizes written by programs that do not know the length; the sound then extends to the file's end."""

MOST_CHUNKS = 10_000
"""Maximum number of chunks before the samples; a file of zeros would have one every eight bytes."""


class Head(NamedTuple):
    """Header of a WAV file.

    Attributes:
        code, bits: format of a sample. channels, rate: number of channels, and samples of each per second.
        start: offset of the samples in the file, in bytes. frames: number of samples per channel in the file.
        declared: number of samples per channel by the header, which is larger if the file is truncated.
    """

    code: int
    bits: int
    channels: int
    rate: int
    start: int
    frames: int
    declared: int

    @property
    def width(self) -> int:
        """Bytes of a frame."""
        return self.channels * self.bits // 8


def is_wav(first: bytes) -> bool:
    """Return whether a file begins like a WAV file, given its first 12 bytes."""
    return first[:4] == b"RIFF" and first[8:12] == b"WAVE"


def read_head(stream: BinaryIO, name: str) -> Head | None:
    """Return the header of a WAV file; ``None`` for an unsupported format, such as ADPCM.

    The stream is seekable and at the file's start; ``name`` is for messages. Raises DataError if the header is damaged,
    or the samples are missing.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(12)
    form: tuple[int, int, int, int] | None = None
    for _ in range(MOST_CHUNKS):
        chunk = stream.read(8)
        if len(chunk) < 8:
            what = "its samples are missing" if form else "its header is damaged (no chunk 'fmt ')"
            raise DataError(f"{name}: truncated WAV file: {what}; copy it again")
        kind, length = chunk[:4], int.from_bytes(chunk[4:], "little")
        if kind == b"fmt ":
            form = _form(stream.read(min(length, _FORM)), name)
            stream.seek(max(0, length - _FORM), io.SEEK_CUR)
        elif kind == b"data":
            break
        else:
            stream.seek(length, io.SEEK_CUR)
        if length % 2:
            stream.seek(1, io.SEEK_CUR)
    else:
        raise DataError(f"{name}: damaged WAV file: {MOST_CHUNKS} chunks without samples; write it again")
    if form is None:
        raise DataError(f"{name}: damaged WAV file: its samples precede the chunk 'fmt '; write it again")
    return _head(form, stream.tell(), length, size)


_FORM = 40
"""Maximum bytes read of the chunk ``fmt``; the rest is skipped."""


def _form(chunk: bytes, name: str) -> tuple[int, int, int, int]:
    """Return code, bits, channels and rate."""
    if len(chunk) < 16:
        raise DataError(f"{name}: damaged WAV file: its chunk 'fmt ' has {len(chunk)} bytes; write it again")
    code, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == EXTENSIBLE and len(chunk) >= 26:
        code = int.from_bytes(chunk[24:26], "little")
    if not channels or not rate:
        raise DataError(f"{name}: damaged WAV file: {channels} channels at {rate} Hz; write it again")
    if (code, bits) in KNOWN and frame != channels * bits // 8:
        raise DataError(
            f"{name}: damaged WAV file: {channels} channels of {bits} bits in {frame} bytes; write it again"
        )
    return code, bits, channels, rate


def _head(form: tuple[int, int, int, int], start: int, length: int, size: int) -> Head | None:
    code, bits, channels, rate = form
    if (code, bits) not in KNOWN:
        return None
    width, there = channels * bits // 8, size - start
    declared = there if length >= OPEN_ENDED else length
    return Head(code, bits, channels, rate, start, min(declared, there) // width, declared // width)


def read_frames(stream: BinaryIO, head: Head, first: int, stop: int) -> Array:
    """Return the frames ``first`` to ``stop``, float32 [frames, channels]; integers are scaled to -1..1.

    As in libsndfile, a sample of ``b`` bits is divided by 2^(b-1); 128 is first subtracted from 8-bit samples.
    """
    stream.seek(head.start + first * head.width)
    content = stream.read((stop - first) * head.width)
    return _DECODERS[head.code, head.bits](content).reshape(-1, head.channels)


def _scaled(content: bytes, dtype: str, steps: float, zero: float = 0.0) -> Array:
    values = np.frombuffer(content, dtype).astype(np.float32)  # changed in place, as a recording may have 1 GB
    values -= np.float32(zero)
    values *= np.float32(1 / steps)
    return values


def _of_24_bits(content: bytes) -> Array:
    three = np.frombuffer(content, np.uint8).reshape(-1, 3)
    four = np.zeros((len(three), 4), np.uint8)
    four[:, 1:] = three
    return (four.view("<i4")[:, 0] >> 8).astype(np.float32) * np.float32(2.0**-23)


def _of_floats(content: bytes, dtype: str) -> Array:
    with np.errstate(over="ignore"):
        return np.frombuffer(content, dtype).astype(np.float32)


def _by_table(content: bytes, code: int) -> Array:
    return np.asarray(companded(code)[np.frombuffer(content, np.uint8)])


@lru_cache
def companded(code: int) -> Array:
    """Return the values of the 256 bytes of A-law or mu-law, float32 in -1..1 (ITU-T G.711).

    A byte holds a sign, 3 bits of exponent and 4 bits of mantissa, stored with all bits (mu-law) or every second one
    (A-law) inverted.
    """
    byte = np.arange(256) ^ (0x55 if code == ALAW else 0xFF)
    exponent, mantissa = (byte >> 4) & 7, byte & 15
    if code == ALAW:
        size = np.where(exponent == 0, 2 * mantissa + 1, (2 * mantissa + 33) << np.maximum(exponent - 1, 0)) * 8
        positive = byte >= 128
    else:
        size = (((2 * mantissa + 33) << exponent) - 33) * 4
        positive = byte < 128
    table: Array = (np.where(positive, size, -size) / 32768).astype(np.float32)
    table.setflags(write=False)
    return table


def write_mu_law(path: str | os.PathLike[str], samples: Array, rate: int) -> None:
    """Write mono sound, clipped to -1..1, as WAV in mu-law: a byte per sample, its error in proportion (-38 dB)."""
    table = companded(MULAW)
    order = np.argsort(table, kind="stable")
    levels = table[order].astype(np.float64)
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, np.asarray(samples, np.float64))
    content = order[nearest].astype(np.uint8).tobytes()
    form = struct.pack("<HHIIHHH", MULAW, 1, rate, rate, 1, 8, 0)
    fact = struct.pack("<I", len(content))
    body = b"".join(
        kind + struct.pack("<I", len(chunk)) + chunk + b"\0" * (len(chunk) % 2)
        for kind, chunk in ((b"fmt ", form), (b"fact", fact), (b"data", content))
    )
    with open(path, "wb") as stream:
        stream.write(b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body)


_DECODERS: dict[tuple[int, int], Callable[[bytes], Array]] = {
    (PCM, 8): partial(_scaled, dtype="u1", steps=128, zero=128),
    (PCM, 16): partial(_scaled, dtype="<i2", steps=32768),
    (PCM, 24): _of_24_bits,
    (PCM, 32): partial(_scaled, dtype="<i4", steps=2.0**31),
    (FLOAT, 32): partial(_of_floats, dtype="<f4"),
    (FLOAT, 64): partial(_of_floats, dtype="<f8"),
    (ALAW, 8): partial(_by_table, code=ALAW),
    (MULAW, 8): partial(_by_table, code=MULAW),
}
