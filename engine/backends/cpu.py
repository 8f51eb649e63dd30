"""Target ``cpu``: the fastest installed engine on the host's cores, chosen for each model by a short trial."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.agreement import Agreement
from engine.backends.trial import Contender, TrialResult, choose, random_input, varied_inputs
from engine.base import DTYPES, Array, ConfigError, Engine, EngineError, EngineSpec, InputError, ModelError
from engine.batching.batch import batch_of, split
from engine.host.cores import processor_name, usable_cores
from engine.onnx.content import model_content
from tecoinfer_modelzoo import install_command

_CALIBRATION_ROWS = 1
"""Samples per call of the calibration, which keeps every activation: ResNet-50 takes 2.1 GB with 8, 0.6 with 1."""

_SHOWN = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}

_log = logging.getLogger(__name__)


class CpuEngine(Engine):
    """Target ``cpu``: ONNX Runtime or OpenVINO, whichever runs this model faster with this batch, dtype and streams.

    If both are installed, the first opening of a model measures them (:mod:`engine.backends.trial`, two or three
    seconds for a ResNet-50), later ones use the cached result. ``dtype="bfloat16"`` needs OpenVINO; ``"float16"`` runs
    on ONNX Runtime. ``"int8"`` quantises a float32 model from real samples (:meth:`calibrate`), which are needed before
    the first call; its inputs and outputs stay float32.
    """

    dtypes = (*DTYPES, "bfloat16", "int8")
    outputs_owned = inputs_untouched = concurrent_calls = True

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._inner: Engine | None = None
        self._verdict: TrialResult | None = None
        self._scratch = ExitStack()
        if self.dtype == "int8":
            self._prepare_int8()
        else:
            self._take(*_open_float(spec, self.dtype))

    def _take(self, inner: Engine, verdict: TrialResult | None) -> None:
        """Use this engine from now on."""
        if self._inner is not None:
            self._inner.release()
        self._inner, self._verdict = inner, verdict
        self.streams = inner.streams
        if self.dtype == "int8":  # inputs and metadata are those of the float32 model
            inner.batching = self.batching
            return
        self.dtype, self.metadata = inner.dtype, inner.metadata
        self._join(inner)

    def _join(self, inner: Engine) -> None:
        self.batching = inner.batching
        self.spec = replace(self.spec, input_size=inner.spec.input_size, dims=inner.spec.dims, open_sizes={})

    def _prepare_int8(self) -> None:
        """Set the model's inputs and outputs; the engine is chosen by :meth:`calibrate`."""
        with _onnx_runtime(self.spec, "float32") as engine:
            if any(tensor.dtype == np.float16 for tensor in engine.inputs):
                raise ModelError(f"{self.spec.ckpt} is float16; int8 is made from the float32 export")
            engine.batching.learn()  # calibration splits calls into samples
            self._join(engine)
            self.metadata, self.streams = engine.metadata, engine.streams

    def describe(self) -> str:
        """Return the chosen engine, and how much faster it was than the others in the trial."""
        if self._inner is None:
            return f"int8, to be calibrated from {self.spec.calibration} samples"
        said = self._verdict.describe() if self._verdict is not None else self._inner.describe()
        return f"{said}; {self.agreement.text}" if self.agreement is not None else said

    @property
    def computed_by(self) -> str:
        """The chosen engine, without the times of the trial, which change when it is repeated."""
        if self._verdict is None:
            return self.describe()
        return self._verdict.chosen if self.agreement is None else f"{self._verdict.chosen}; {self.agreement.recipe}"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run any batch on the chosen engine."""
        if self._inner is None:
            raise EngineError(
                f"{self.spec.ckpt}: int8 has no ranges yet; pass {self.spec.calibration} real samples to calibrate() "
                "before the first call"
            )
        return self._inner.infer(inputs)

    def cancel(self) -> None:
        """Stop running calls as soon as the chosen engine can."""
        if self._inner is not None:
            self._inner.cancel()

    def close(self) -> None:
        """Release the chosen engine and delete a quantised model that could not be cached."""
        if self._inner is not None:
            self._inner.release()
        self._scratch.close()

    @property
    def calibration_samples(self) -> int:
        """Number of real samples that int8 still needs."""
        return self.spec.calibration if self.dtype == "int8" and self._inner is None else 0

    def calibrate(self, samples: Iterable[list[Array]]) -> None:
        """Quantise the model from real samples, or load the cached model of the same samples; then choose the engine.

        The samples are kept in memory meanwhile.

        Args:
            samples: for every batch of samples one array per input, as :meth:`__call__` takes them.

        Raises:
            EngineError: samples are missing, or the engine is not int8.
            InputError: a sample does not fit the model or is not finite.
            ModelError: the model cannot be quantised.
        """
        if self.dtype != "int8":
            super().calibrate(samples)
        batches = [self.batching.checked(list(batch)) for batch in samples]
        if not batches:
            raise EngineError(f"{self.spec.ckpt}: calibrate() got no samples; pass {self.spec.calibration}")
        for array, tensor in ((a, t) for batch in batches for a, t in zip(batch, self.inputs, strict=True)):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"calibration samples of input {tensor.name!r} hold values that are not finite")
        found = self._choose_int8(list(self._shards(batches)), self._sample(batches))
        if found is not None:  # its count includes padding
            self.agreement = replace(found, samples=sum(batch_of(batch, self.inputs) for batch in batches))

    def _choose_int8(self, calls: list[list[Array]], sample: list[Array]) -> Agreement | None:
        """Choose the recipe from ``calls`` and the engine (trial input ``sample``); return its agreement."""
        from engine.backends.int8_models import Int8Maker, passing

        spec = replace(self.spec, dtype="float32", pass_path=None)
        alone = replace(spec, streams=1)
        openers: dict[str, _Opener] = {f"{_name('onnxruntime')} int8": _onnx_runtime}
        if openvino_installed():
            openers[f"{_name('openvino')} int8"] = _openvino_int8
        maker = Int8Maker(
            spec,
            [tensor.name for tensor in self.inputs],
            calls,
            {name: partial(_opened, opener, alone) for name, opener in openers.items()},
            lambda: _onnx_runtime(alone, "float32"),
            processor_name(),
            self._scratch,
        )
        made, found = maker.choose()
        # An engine that failed stays a contender: the trial reports the reason.
        able = [name for name in openers if name in passing(found) or name not in found]
        contenders = [
            Contender(name, partial(maker.open, partial(_opened, openers[name], spec), made)) for name in able
        ]
        if openvino_installed():
            exact = Contender(f"{_name('onnxruntime')} float32", lambda: _onnx_runtime(spec, "float32"), may_win=False)
            contenders.append(exact)
        engine, verdict = choose(contenders, _trial_key(self.spec, "int8", made.key), lambda _: sample, agree=False)
        self._take(engine, verdict)
        return found.get(verdict.chosen)

    def _shards(self, batches: list[list[Array]]) -> Iterator[list[Array]]:
        """Split samples into padded calls of the static batch, or of one; batches of dependent ones stay whole."""
        axes = [tensor.batch_axis for tensor in self.inputs]
        for batch in batches:
            total = batch_of(batch, self.inputs)
            size = self.static_batch or (_CALIBRATION_ROWS if self.independent else total)
            if self.independent is False and size != total:
                raise InputError(
                    f"{self.spec.ckpt}: calibration got {total} samples at a time; its samples depend on one another "
                    f"({self.batching.why_dependent}) and its batch is fixed to {size}: use --batch_size {size}"
                )
            yield from map(list, split(batch, axes, total, size))

    def _sample(self, batches: list[list[Array]]) -> list[Array]:
        """Return real samples in the shape of a trial's input, repeated if there are too few."""
        like = random_input(self, self.spec.batch_size)
        if like is None:
            return batches[0]
        return [
            real if tensor.batch_axis is None else _repeated(real, tensor.batch_axis, array.shape[tensor.batch_axis])
            for tensor, array, real in zip(self.inputs, like, batches[0], strict=True)
        ]


def _repeated(array: Array, axis: int, size: int) -> Array:
    repeated: Array = np.take(array, np.arange(size) % array.shape[axis], axis)
    return repeated


def _open_float(spec: EngineSpec, dtype: str) -> tuple[Engine, TrialResult | None]:
    if dtype == "bfloat16" and not openvino_installed():
        raise ConfigError(
            f"dtype bfloat16 on target cpu is OpenVINO's; run: {install_command('openvino')}, or use --dtype float32"
        )
    if not os.access(spec.ckpt, os.R_OK) or not os.path.isfile(spec.ckpt):
        return _onnx_runtime(spec, "float32"), None  # its error for unreadable files is the most precise
    if dtype == "float16" or not openvino_installed():
        return _onnx_runtime(spec, dtype), None
    baseline = Contender(
        f"{_name('onnxruntime')} float32",
        lambda: _onnx_runtime(spec, "float32"),
        may_win=dtype == "float32",
        judge=True,  # OpenVINO reads undefined memory if a weight's data is missing
    )
    other = Contender(f"{_name('openvino')} {dtype}", lambda: _openvino(spec, dtype))
    return choose(
        [baseline, other],
        _trial_key(spec, dtype, model_content(spec.ckpt).sha256),
        lambda engine: random_input(engine, spec.batch_size),
        agree=dtype == "float32",
        draws=lambda engine: varied_inputs(engine, spec.batch_size, _drawn_bounds(spec.ckpt)),
    )


def openvino_installed() -> bool:
    """Return whether OpenVINO is installed, without importing it."""
    return importlib.util.find_spec("openvino") is not None


def _onnx_runtime(spec: EngineSpec, dtype: str) -> Engine:
    from engine.backends.ort import OnnxRuntimeEngine

    return OnnxRuntimeEngine(replace(spec, dtype=dtype))


def _openvino(spec: EngineSpec, dtype: str) -> Engine:
    """Open a model on OpenVINO if it computes the same as ONNX Runtime; this is checked before importing OpenVINO."""
    from engine.backends.ov_guards_kept import guard_of

    guard = guard_of(spec.ckpt)
    if guard.refusal:
        raise ModelError(f"{spec.ckpt}: OpenVINO's outputs would differ: {guard.refusal}")
    from engine.backends.ov import OpenVinoEngine

    return OpenVinoEngine(replace(spec, dtype=dtype), guard)


def _drawn_bounds(path: Path) -> dict[str, tuple[int, int]]:
    """Return the range of integers to draw for each input that may have any value; others stay 0."""
    from engine.onnx.load import load_model
    from engine.onnx.table_indices import random_input_bounds

    return random_input_bounds(load_model(path))


def _openvino_int8(spec: EngineSpec, dtype: str) -> Engine:
    """Open an int8 file on OpenVINO without a guard: its agreement with float32 was measured."""
    from engine.backends.ov import OpenVinoEngine

    return OpenVinoEngine(replace(spec, dtype=dtype))


_Opener = Callable[[EngineSpec, str], Engine]


def _opened(opener: _Opener, spec: EngineSpec, path: Path) -> Engine:
    """Open an int8 file, which contains its precisions."""
    return opener(replace(spec, ckpt=path), "float32")


def _name(package: str) -> str:
    from engine.host.installed import component_version

    return f"{_SHOWN[package]} {component_version(package)}"


def _trial_key(spec: EngineSpec, dtype: str, model: str) -> str:
    """Return a hash of everything a trial's result depends on."""
    facts: dict[str, Any] = {
        "model": model,
        "batch_size": spec.batch_size,
        "input_size": spec.input_size,
        "dims": {symbol: list(sizes) for symbol, sizes in spec.dims.items()},
        "dtype": dtype,
        "streams": spec.streams,
        "cores": usable_cores(),
        "processor": processor_name(),
        "engines": [_name("onnxruntime"), _name("openvino")],
        # Changes: 2 refuses models that the baseline refuses, 3 does not cache failures, 4 draws integers
        "judged": 4,
    }
    if spec.open_sizes:
        facts["open_sizes"] = sorted([str(place), *sizes] for place, sizes in spec.open_sizes.items())
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
