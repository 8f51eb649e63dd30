"""Random samples from the signature of a model, and the outputs of the baseline for them.

Values of an input, from a generator per sample and input (seed, number of the sample, number of the input):

- floats: standard normal;
- integers that index a table of the model (token ids): 0 to the number of rows - 1;
- integers and booleans with ``mask`` in their name: 1;
- integers of 8 bits, and ``uint16``: their whole range; other integers and booleans: 0 or 1;
- any input of ``--random_range NAME=LOW:HIGH``: uniform, of integers with both ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, Engine, EngineSpec, InputError, TensorSpec, open_engine, random_array
from utils.datasets.arrays.sets import EXPECTED_FORMS, ArraySample
from utils.datasets.base import ListDataset
from utils.shapes import parse_dims, parse_shapes
from utils.tasks.arrays.inputs import sample_shape, stacked
from utils.tasks.options import Options

BASELINE = "onnx"
"""Target whose outputs are the expected ones, in float32."""

NO_TABLE = 2**20 - 1
"""Bound of :func:`engine.onnx.random_input_bounds` for integers of 32 bits and more that do not index a table."""

_RANGE = r"(.+)=(-?[0-9.]+(?:e-?[0-9]+)?):(-?[0-9.]+(?:e-?[0-9]+)?)"

Ranges = Mapping[str, tuple[float, float]]


def parse_ranges(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Parse ``NAME=LOW:HIGH``. Raises ConfigError if a word has another form, or LOW is above HIGH."""
    found = {}
    for word in words:
        match = re.fullmatch(_RANGE, word)
        try:
            low, high = (float(match[2]), float(match[3])) if match else (1.0, 0.0)
        except ValueError:
            low, high = 1.0, 0.0
        if match is None or low > high:
            raise ConfigError(f"--random_range {word!r} is not NAME=LOW:HIGH; write an input and its values: ids=0:999")
        found[match[1]] = (low, high)
    return found


class RandomSamples(ListDataset):
    """Random samples; the fingerprint covers how they were drawn and the model, from which the targets follow."""

    def __init__(self, samples: Sequence[ArraySample], targets: Any, notes: Mapping[str, Any], ckpt: Path) -> None:
        super().__init__(samples, targets, names=[one.name for one in samples], notes=notes)
        self._ckpt = ckpt

    def fingerprint(self) -> str:
        """Return a hash of the samples and the model file."""
        from engine.onnx import file_hash  # imports onnx, which only random samples need

        own = ListDataset(self.samples, names=self.names).fingerprint()
        return sha256(f"{own} {file_hash(self._ckpt)}".encode()).hexdigest()


def random_samples(options: Options, *, wanted: bool) -> ListDataset:
    """Return random samples for a model, as many as ``--random``.

    Args:
        options: with ``random``, ``seed``, ``random_range``, ``ckpt``, ``dim``, ``input_shapes`` and ``batch_size``.
        wanted: compute the baseline's outputs as targets.

    Raises:
        ConfigError: a dynamic dimension has no size, an input has no random values, or a range is not of an input.
    """
    ckpt, count = options.models["model"], options.random
    with _baseline(options) as engine:
        draw = _Draw(engine.inputs, options, ckpt)
        samples = [ArraySample(f"random {i}", draw.sample(i)) for i in range(count)]
        targets = _outputs(engine, samples, options.batch_size) if wanted else None
    forms = {} if targets is None else {name: (one.shape, one.dtype) for name, one in targets[0].items()}
    return RandomSamples(samples, targets, {EXPECTED_FORMS: forms}, ckpt)


@contextmanager
def _baseline(options: Options) -> Iterator[Engine]:
    names, shapes = parse_shapes(options.input_shapes, options.batch_size) if options.input_shapes else ((), None)
    spec = EngineSpec(
        ckpt=options.models["model"],
        batch_size=options.batch_size,
        input_size=shapes,
        input_name=tuple(options.input_name) or names,
        dims=parse_dims(options.dim),
    )
    with open_engine(BASELINE, spec) as engine:
        yield engine


def _outputs(engine: Engine, samples: Sequence[ArraySample], step: int) -> list[dict[str, Array]]:
    """Return the outputs of each sample by name."""
    found: list[dict[str, Array]] = []
    for start in range(0, len(samples), step):
        part = samples[start : start + step]
        arrays = stacked(list(zip(*(one.arrays for one in part), strict=True)), engine.inputs)
        outputs = engine(arrays)
        found += rows_of(outputs, engine.outputs, len(part))
    return found


def rows_of(outputs: Any, specs: Sequence[TensorSpec], count: int) -> list[dict[str, Array]]:
    """Return the outputs of each sample by name; an output without a batch axis belongs to all samples.

    Args:
        outputs: of a call: an array, or a list of arrays. specs: the model's outputs. count: number of samples.

    Raises:
        InputError: an output has another number of rows along its batch axis.
    """
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    rows: list[dict[str, Array]] = [{} for _ in range(count)]
    for array, spec in zip(arrays, specs, strict=True):
        each = [array] * count if spec.batch_axis is None else np.moveaxis(np.asarray(array), spec.batch_axis, 0)
        if len(each) != count:
            raise InputError(
                f"output {spec.name!r} has {len(each)} rows for {count} samples; export the model with one per sample"
            )
        for row, one in zip(rows, each, strict=True):
            row[spec.name] = np.asarray(one)
    return rows


class _Draw:
    """Draws samples; the values of a sample depend on the seed and its number only."""

    def __init__(self, specs: Sequence[TensorSpec], options: Options, ckpt: Path) -> None:
        self._specs, self._seed, self._ckpt = specs, options.seed, ckpt
        self._ranges = parse_ranges(options.random_range)
        self._sizes = {symbol: max(sizes) for symbol, sizes in parse_dims(options.dim).items()}
        unknown = next((name for name in self._ranges if name not in {spec.name for spec in specs}), None)
        if unknown is not None:
            raise ConfigError(
                f"--random_range {unknown}: the model has no such input; its inputs: "
                f"{', '.join(spec.name for spec in specs)}"
            )
        self._bounds = _bounds(ckpt) if any(one.dtype.kind in "iu" for one in specs) else {}
        self._shapes = [self._shape(spec) for spec in specs]

    def sample(self, number: int) -> tuple[Array, ...]:
        """Return an array per input."""
        return tuple(
            self._array(spec, shape, np.random.default_rng((self._seed, number, place)))
            for place, (spec, shape) in enumerate(zip(self._specs, self._shapes, strict=True))
        )

    def _shape(self, spec: TensorSpec) -> tuple[int, ...]:
        symbols = spec.symbols or (None,) * len(spec.shape)
        inner = [symbol for axis, symbol in enumerate(symbols) if axis != spec.batch_axis]
        shape = [
            self._sizes.get(symbol or "") if size is None else size
            for size, symbol in zip(sample_shape(spec), inner, strict=True)
        ]
        lacking = next((symbol for size, symbol in zip(shape, inner, strict=True) if size is None), "")
        if None in shape:
            how = f"--dim {lacking}=SIZE" if lacking else "--input_shapes"
            raise ConfigError(f"--random: input {spec.name!r} has a dynamic dimension {lacking or '?'}; give {how}")
        return tuple(size for size in shape if size is not None)

    def _array(self, spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        kind, own = spec.dtype.kind, self._ranges.get(spec.name)
        if kind not in "fiub":
            raise ConfigError(f"--random: input {spec.name!r} takes {spec.dtype}; give data with --data_path")
        if own is None and kind == "f":
            if spec.batch_axis is None:
                rng = np.random.default_rng(self._seed)  # one for all samples
            return random_array(rng, shape, spec.dtype)
        low, high = own or self._range(spec)
        if kind == "f":
            return rng.uniform(low, high, shape).astype(spec.dtype)
        return rng.integers(int(low), int(high), shape, endpoint=True).astype(spec.dtype)

    def _range(self, spec: TensorSpec) -> tuple[float, float]:
        """Return the range of an integer input."""
        if spec.dtype.kind == "b" or "mask" in spec.name.lower():
            return (1, 1) if "mask" in spec.name.lower() else (0, 1)
        if spec.name not in self._bounds:
            raise ConfigError(
                f"--random: input {spec.name!r} determines a size or a position in {self._ckpt}; give "
                f"--random_range {spec.name}=LOW:HIGH"
            )
        low, high = self._bounds[spec.name]
        if spec.dtype.itemsize == 1 or (low == 0 and high < NO_TABLE):
            return low, high
        return 0, 1


def _bounds(ckpt: Path) -> dict[str, tuple[int, int]]:
    """Return the range of each integer input that does not determine a size."""
    from engine.onnx import load_model, random_input_bounds

    return random_input_bounds(load_model(ckpt))
