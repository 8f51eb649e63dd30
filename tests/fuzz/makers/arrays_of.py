"""Invalid arrays in ``.npz`` files, and side effects that reading must not have."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.case import Outcome
from tests.fuzz.makers.bytes_of import mutated

MARK = "it_has_run"
ESCAPED = "/tmp/escaped.npy"  # noqa: S108 -- where a member says it wants to be


def write_npz(path: Path, arrays: Mapping[str, Any], rng: random.Random, spoil: bool = True) -> str:
    """Write arrays as numpy does, or invalid ones."""
    import numpy as np

    parts = {}
    for name, array in arrays.items():
        out = io.BytesIO()
        np.lib.format.write_array(out, np.asarray(array), allow_pickle=True)
        parts[f"{name}.npy"] = out.getvalue()
    done = "whole"
    if spoil and rng.random() < 0.3:
        name = rng.choice(list(parts))
        parts[name], done = mutated(parts[name], rng, 4)
        done = f"{name}: {done}"
    if spoil and rng.random() < 0.15:
        name, size = rng.choice(list(parts)), rng.choice((10**15, 2**63, -1, 10**40))
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size}, 1), }}".ljust(117).encode() + b"\n"
        parts[name], done = b"\x93NUMPY\x01\x00\x76\x00" + header, f"{name}: a header of {size} rows"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        if spoil and rng.random() < 0.2:
            extra = rng.choice(("../escaped.npy", ESCAPED, next(iter(parts)), "odd\x1b[31m.npy", "x.npy.npy"))
            archive.writestr(extra, next(iter(parts.values())))
            done += f", a member {extra!r}"
        if spoil and rng.random() < 0.06:
            name = rng.choice(list(parts))
            with archive.open(f"{name}x" if rng.random() < 0.5 else "bomb.npy", "w", force_zip64=True) as file:
                head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (6000000000,), }".ljust(117) + b"\n"
                file.write(b"\x93NUMPY\x01\x00\x76\x00" + head)
                for _ in range(rng.choice((40, 600))):
                    file.write(bytes(10_000_000))
            done += ", a bomb"
    if spoil and rng.random() < 0.2:
        content, how = mutated(path.read_bytes(), rng, 3)
        path.write_bytes(content)
        done += f", {how}"
    return done


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, (MARK, "w")


def spoil_arrays(arrays: dict[str, Any], rng: random.Random) -> str:
    """Change the type or values of an array."""
    import numpy as np

    done = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(arrays))
        array = np.array(arrays[name])
        kind = rng.choice(("dtype", "shape", "value", "value", "gone", "object", "twice", "empty", "complex", "cut"))
        if kind == "dtype":
            with np.errstate(all="ignore"):
                chosen = rng.choice(("f8", "i1", "u8", "?", "c8", "M8[s]", "V4", "U3", "S2", "f2", ">i4"))
                try:
                    array = array.astype(chosen)
                except (ValueError, TypeError):
                    continue
        elif kind == "shape":
            array = rng.choice(
                (array[None], array.ravel(), array[..., None], array.T, array.reshape(-1)[:1], array.reshape(-1)[:0])
            )
        elif kind == "value" and array.size and array.dtype.kind in "iuf":
            flat = array.reshape(-1).copy()
            wide = flat.astype("f8" if flat.dtype.kind == "f" else "i8")
            values = (
                (float("nan"), float("inf"), -1e30, 1e300) if wide.dtype.kind == "f" else (-1, 2**62, -(2**63), 10**6)
            )
            for _ in range(rng.choice((1, 5, 500))):
                wide[rng.randrange(wide.size)] = rng.choice(values)
            array = wide.reshape(array.shape)
        elif kind == "gone":
            del arrays[name]
            done.append(f"no {name}")
            if not arrays:
                arrays["odd"] = np.zeros(1)
            continue
        elif kind == "object":
            array = np.empty(array.shape or 1, object)
            array[...] = Runs()
        elif kind == "twice":
            array = np.concatenate([array, array]) if array.ndim else array
        elif kind == "empty":
            array = np.zeros(rng.choice(((), (0,), (0, 0), (2, 0), (1, 1, 1, 1))))
        elif kind == "complex":
            array = array.astype("c16") if array.dtype.kind in "iuf" else array
        elif array.ndim:
            array = array[: len(array) // 2]
        arrays[name] = array
        done.append(f"{name} {kind}")
    return ", ".join(done)


def nothing_ran(
    folder: Path, more: Callable[[Outcome], str | None] = lambda outcome: None
) -> Callable[[Outcome], str | None]:
    """Return a finding if reading ran code or wrote files."""

    def judge(outcome: Outcome) -> str | None:
        if (folder / MARK).exists():
            return "what a file holds has been run"
        if (folder.parent / "escaped.npy").exists() or Path(ESCAPED).exists():
            return "a member was written outside"
        return more(outcome)

    return judge
