"""Bytes changed at random: damage by transfers, disks and exporters, and by attackers."""

from __future__ import annotations

import random

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(content: bytes, rng: random.Random, most: int = 8) -> tuple[bytes, str]:
    """Return bytes changed in one to ``most`` places, and the change."""
    data, done = bytearray(content), []
    for _ in range(rng.randint(1, most)):
        how = rng.choice(list(_CHANGES))
        _CHANGES[how](data, rng)
        done.append(how)
    return bytes(data), ", ".join(done)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(INTERESTING)


def _number(data: bytearray, rng: random.Random) -> None:
    """Write an extreme integer of 2, 4 or 8 bytes as length or size."""
    size = rng.choice((2, 4, 8))
    if len(data) >= size:
        place = rng.randrange(len(data) - size + 1)
        value = rng.choice((0, 1, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1, rng.getrandbits(16)))
        data[place : place + size] = value.to_bytes(size, rng.choice(("little", "big")))  # type: ignore[arg-type]


def _cut(data: bytearray, rng: random.Random) -> None:
    if data:
        del data[rng.randrange(len(data)) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    if data:
        start = rng.randrange(len(data))
        del data[start : start + rng.randint(1, 64)]


def _insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(data))
    data[place:place] = rng.randbytes(rng.randint(1, 64))


def _repeat(data: bytearray, rng: random.Random) -> None:
    if data:
        start = rng.randrange(len(data))
        piece = data[start : start + rng.randint(1, 256)]
        data[start:start] = piece * rng.choice((1, 2, 50))


def _zero(data: bytearray, rng: random.Random) -> None:
    if data:
        start = rng.randrange(len(data))
        size = min(rng.randint(1, 512), len(data) - start)
        data[start : start + size] = bytes(size)


_CHANGES = {
    "a bit flipped": _flip,
    "a byte set": _set,
    "a number overwritten": _number,
    "cut short": _cut,
    "bytes removed": _remove,
    "bytes inserted": _insert,
    "bytes repeated": _repeat,
    "bytes zeroed": _zero,
}
