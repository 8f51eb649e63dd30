"""Request of a tecoexec run, and the corresponding engine and random inputs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, Engine, EngineSpec, engine_class, engine_nums, open_engine, random_array
from tecoexec.shapes import CardShapes, Shape, Signature, fit_shapes, own_shapes, sized
from tecoinfer_modelzoo.text import shape_text
from utils.stuck import report_slow_opening

SEED = 20261121
"""Seed of the random inputs."""

ENGINE_SUFFIX = ".tecoengine"


@dataclass(frozen=True, slots=True)
class Request:
    """A model at one shape.

    Attributes:
        model: an ONNX file or a saved engine.
        target: target of the engine.
        shapes: shapes of a call to the whole card, one per input, named or in the model's order; empty for the model's.
        dims: instead of them, sizes of the dynamic dimensions in such a call, by name.
        dtype: precision; ``None`` for that of a saved engine.
        pass_path: pass file.
        input_dtypes: dtypes of the input arrays; empty for the model's.
        iterations, warm_up: timed calls, and calls before them.
        run_sync: wait for every call (else calls are queued and overlap).
        simulate_only: on a simulated device, compute no values.
        save_to: file for the built engine; simulated card only.
        paced: on the simulated card, calls take their simulated time on the wall clock.
        streams: calls computed at the same time, on targets that support it.
    """

    model: Path
    target: str = "sdaa"
    shapes: tuple[tuple[str, Shape], ...] = ()
    dtype: str | None = "float32"
    pass_path: Path | None = None
    input_dtypes: tuple[str, ...] = ()
    iterations: int = 10
    warm_up: int = 5
    run_sync: bool = False
    simulate_only: bool = False
    save_to: Path | None = None
    paced: bool = False
    streams: int = 1
    dims: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(f"--iterations {self.iterations} must be at least 1")
        if self.streams < 1:
            raise ConfigError(f"--streams {self.streams} must be at least 1")
        if self.warm_up < 0:
            raise ConfigError(f"--warmUp {self.warm_up} must be at least 0 (it counts iterations)")


def is_saved(path: Path) -> bool:
    """Return whether a file is a saved engine, by its extension or its first bytes."""
    from engine.sdaa import is_built

    return is_built(path)


def spa_count(target: str) -> int:
    """Return the number of SPA that share a call: those visible on a simulated card; else ``MAX_ENGINE_NUMS``."""
    if not engine_class(target).simulated:
        return engine_nums()
    from engine.sdaa import visible_devices

    return len(visible_devices(rank=0))


def read_signature(path: Path) -> Signature:
    """Return the inputs of an ONNX file or a saved engine, cached until it changes; raise ModelError if invalid."""
    return _read(path, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=8)
def _read(path: Path, _: int) -> Signature:
    if is_saved(path):
        from engine.sdaa import read_saved

        saved = read_saved(path)
        names = [spec.name for spec in saved.inputs]
        shapes, batching = tuple(saved.shapes[name] for name in names), saved.batching
        return Signature(path, tuple(saved.inputs), shapes, batching.inputs, batching.independent is not False)
    from engine.batching import batching_of
    from engine.onnx import load_model, signature

    model = load_model(path)
    inputs, _outputs, dims = signature(model)
    batching = batching_of(model, {})
    return Signature(path, tuple(inputs), tuple(map(tuple, dims)), batching.inputs, batching.independent is not False)


def call_shapes(request: Request) -> CardShapes:
    """Return the shapes of one call; raise ConfigError or ModelError if the shapes or the model are invalid."""
    model, spas = read_signature(request.model), spa_count(request.target)
    if not request.shapes and not request.dims:
        return own_shapes(model, spas)
    fitted = fit_shapes(request.shapes or sized(model, dict(request.dims)), model)
    if is_saved(request.model) and fitted.whole == model.dims and fitted.per_spa(spas) != model.dims:
        whole = own_shapes(model, spas)
        warnings.warn(
            f"{request.model}: --input_shapes are those of one SPA, for which the engine was saved; a call of the "
            f"whole card has {whole.batch} samples",
            stacklevel=2,
        )
        return whole
    return fitted


def check_paced(request: Request) -> None:
    """Raise ConfigError if a request paces a target that is not the simulated card."""
    if request.paced and not engine_class(request.target).simulated:
        raise ConfigError(f"--paced is for the simulated card (--target=sdaa), not for target {request.target}")


def open_request(request: Request) -> tuple[Engine, CardShapes]:
    """Open the engine of a request; raise TecoInferError if the model, its shapes or an option are invalid."""
    saved = request.save_to is not None or is_saved(request.model)
    if saved and not engine_class(request.target).simulated:
        raise ConfigError(f"{ENGINE_SUFFIX} files are only for the simulated card, not for target {request.target}")
    check_paced(request)
    shapes = call_shapes(request)
    spec = EngineSpec(
        ckpt=request.model,
        batch_size=shapes.batch,
        input_size=shapes.per_spa(spa_count(request.target)),
        dtype=request.dtype,
        pass_path=request.pass_path,
        simulate_only=request.simulate_only,
        paced=request.paced,
        streams=request.streams,
    )
    if request.save_to is None:
        with report_slow_opening(request.target, request.model):
            return open_engine(request.target, spec), shapes
    from engine.sdaa import SdaaEngine

    return SdaaEngine(spec, save_to=request.save_to), shapes


def random_inputs(request: Request, engine: Engine, shapes: CardShapes) -> list[Array]:
    """Return seeded random arrays (zeros if no values are computed); raise ConfigError for wrong dtypes or sizes."""
    kinds = request.input_dtypes or tuple(spec.dtype.name for spec in engine.inputs)
    wanted = [spec.dtype.kind for spec in engine.inputs]
    if [np.dtype(kind).kind for kind in kinds] != wanted:
        names = ", ".join(f"{spec.name} ({spec.dtype})" for spec in engine.inputs)
        raise ConfigError(f"--input_dtype {','.join(kinds)} does not fit: {request.model} takes {names}")
    rng = np.random.default_rng(SEED)
    values_matter = not (request.simulate_only and engine.simulated)
    return [
        _array(shape, np.dtype(kind), rng if values_matter else None)
        for shape, kind in zip(shapes.whole, kinds, strict=True)
    ]


def _array(shape: Shape, dtype: np.dtype[Any], rng: np.random.Generator | None) -> Array:
    try:
        if rng is None:
            return np.zeros(shape, dtype)
        return random_array(rng, shape, dtype, lean=True)
    except (MemoryError, ValueError) as error:  # raised by NumPy for arrays that are too large
        reason = "this size exceeds the host's memory; use a smaller batch"
        raise ConfigError(f"--input_shapes {shape_text(shape)}: {reason}") from error
