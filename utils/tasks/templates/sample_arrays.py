"""Sample arrays of ``teco new``, and a model's folder from an ONNX file and arrays of the user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from engine import Array, ConfigError, DataError
from utils.arrays import npz_bytes
from utils.fetch import fetched_path, is_fetched_path
from utils.tasks.base import Adoption, Template

IMAGES, SIDE, NOISE = 32, 16, 0.1
"""Number and side of the images, and the standard deviation of their noise."""

RANDOM = 64
"""Number of random samples where no data are given."""

MOST_COMMITTED = 2_000_000
"""Bytes of weights that the structure check accepts in git."""


def clean_images(count: int, seed: int = 0) -> Array:
    """Return smooth images of 0 to 1, float64 [count, 1, SIDE, SIDE]: a wave in any direction."""
    rng = np.random.default_rng(seed)
    places = np.mgrid[:SIDE, :SIDE] / SIDE
    waves = [np.sin(np.tensordot(rng.uniform(-5, 5, 2), places, 1) + rng.uniform(0, 6)) for _ in range(count)]
    return (np.array(waves)[:, None] + 1) / 2


def fill_images(folder: Path) -> Mapping[str, str]:
    """Write noisy images with the clean ones and their mean brightness to ``data/val.npz``, and some without."""
    (folder / "data").mkdir(parents=True)
    clean = clean_images(IMAGES)
    noisy = (clean + np.random.default_rng(1).normal(0, NOISE, clean.shape)).astype(np.float32)
    expected = {"denoised": clean.astype(np.float32), "brightness": clean.mean(axis=(1, 2, 3)).astype(np.float32)}
    (folder / "data" / "val.npz").write_bytes(npz_bytes({"noisy": noisy, **expected}))
    (folder / "data" / "samples.npz").write_bytes(npz_bytes({"noisy": noisy[:8]}))
    return {"images": str(IMAGES), "side": str(SIDE)}


def adopt(folder: Path, model: str, ckpt: Path, data: Sequence[Path]) -> Mapping[str, str]:
    """Copy an ONNX file (with its external data) and arrays into a model's folder.

    Args:
        folder: of the model. model: its name, which the file gets.
        ckpt: the ONNX file, or ``fetch:NAME/path`` of a package, from which the export then takes it.
        data: a file or folder of arrays with expected ones; empty: random samples are run.

    Returns:
        Words for the templates.

    Raises:
        ModelError: the file cannot be read. DataError: the data do not exist.
    """
    from engine.onnx import file_hash, load_model, save_model, signature

    is_fetched = is_fetched_path(ckpt)
    loaded = load_model(fetched_path(ckpt))
    inputs, outputs, _ = signature(loaded)
    save_model(loaded, folder / f"{model}.onnx")
    size = sum(file.stat().st_size for file in folder.glob(f"{model}.onnx*"))
    if size <= MOST_COMMITTED and not is_fetched:
        (folder / ".gitignore").write_text("# The model belongs to the repository.\n!*.onnx\n", encoding="utf-8")
    place = _copied(folder, data)
    return {
        "source": str(ckpt) if is_fetched else ckpt.name.replace("`", ""),
        "export_params": f"\n    params:\n      weights: {ckpt}" if is_fetched else "",
        "export_flag": f" --weights {ckpt}" if is_fetched else "",
        "hash": file_hash(folder / f"{model}.onnx")[:12],
        "inputs": _listed(inputs),
        "outputs": _listed(outputs),
        "data_argument": f'\n        data_path="{place}",' if place else "",
        "data_flag": f" --data_path {place}" if place else "",
        "data_case": f"\n      data_path: {place}" if place else "",
        "data_text": f"`{place}` holds the samples" if place else "The samples are random (`--random`)",
    }


def _listed(specs: Sequence[object]) -> str:
    rows = [
        f"`{spec.name}` ({'x'.join('N' if size is None else str(size) for size in spec.shape)}, {spec.dtype})"  # type: ignore[attr-defined]
        for spec in specs
    ]
    return ", ".join(rows)


def _copied(folder: Path, data: Sequence[Path]) -> str:
    """Copy the data to ``data/``, with expected arrays beside a file; return the path relative to the folder."""
    if not data:
        return ""
    (source,) = data
    if not os.path.lexists(source):
        raise DataError(f"--data {source} does not exist; check the path")
    if source.is_dir():
        shutil.copytree(source, folder / "data")
        return "data"
    (folder / "data").mkdir()
    for file in (source, *sorted(source.parent.glob(f"{source.stem}.expected.*"))):
        shutil.copy(file, folder / "data")
    if any(mark in source.name for mark in "\"'\\${}"):
        raise ConfigError(f"--data {source}: rename the file without quotes and braces")
    return f"data/{source.name}"


_HERE = Path(__file__).parent

ARRAYS = Template(
    _HERE / "arrays", fill_images, Adoption(_HERE / "arrays_of_file", adopt, {"random": RANDOM}, any_model=True)
)
