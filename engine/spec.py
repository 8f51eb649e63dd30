"""The model to open and how to run it."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tecoinfer_modelzoo.errors import ConfigError, PassError

PASS_PATH = Path(__file__).resolve().parent / "passes"
"""Folder of the optimisation passes a model can choose (``PASS_PATH / "default_pass.py"``)."""

DTYPES = ("float32", "float16")  # precisions supported by every target
ALL_DTYPES = (*DTYPES, "bfloat16", "int8")  # precisions of any target; those of one target are :attr:`Engine.dtypes`
GOOD_COSINE = 0.99  # cosine between int8 and float32 outputs from which int8 is accepted without a warning
MAX_SPA = 8  # largest accepted ``MAX_ENGINE_NUMS``; real cards are configured with 3 or 4


if TYPE_CHECKING:
    Given = str | os.PathLike[str]

    class _GivenPath:
        """Accepts any path; reads as a ``Path``."""

        def __get__(self, spec: object, owner: Any) -> Path: ...
        def __set__(self, spec: object, value: Given) -> None: ...

    class _GivenPathOrNone:
        def __get__(self, spec: object, owner: Any) -> Path | None: ...
        def __set__(self, spec: object, value: Given | None) -> None: ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # generated methods cost start-up time
class CardOptions:
    """Options of targets with a card.

    Attributes:
        rank: index of the card (device) to use.
        save_engine: save the built engine beside the model, if the target builds one.
        divided: split a call over every SPA of the card; ``False`` uses a single one.
        simulate_only: on a simulated device, compute only costs, no values (outputs are zeros).
        paced: on a simulated card, calls take their simulated time on the wall clock (also ``TECO_SIM_PACED=1``).
        shard_tables: split the rows of embedding tables over the card's SPA if they do not fit one of them; other
        targets
            hold them whole.
    """

    rank: int = 0
    save_engine: bool = False
    divided: bool = True
    simulate_only: bool = False
    paced: bool = False
    shard_tables: bool = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Int8Options:
    """Options of engines that compute in ``"int8"``.

    Attributes:
        calibration: number of real samples from which the engine chooses its ranges (:meth:`Engine.calibrate`).
        min_cosine: smallest accepted cosine to float32 (:class:`engine.agreement.Agreement`); 0 accepts all.
    """

    calibration: int = 128
    min_cosine: float = GOOD_COSINE

    def __post_init__(self) -> None:
        _check_count("calibration", self.calibration, " sample")
        if not 0 <= self.min_cosine <= 1:  # NaN too
            raise ConfigError(f"min_cosine {self.min_cosine} must be from 0, which accepts any int8 engine, to 1")


@dataclass(frozen=True)
class EngineSpec(CardOptions, Int8Options):
    """The model to open and how to run it, with the options that only cards, or only int8 engines, read.

    All are given and read by name: ``EngineSpec("model.onnx", rank=1, calibration=64).rank``.

    Attributes:
        ckpt: path of the ONNX file; a string becomes a ``Path``, as in ``pass_path``.
        batch_size: samples in one call to the whole card.
        input_size: one shape per model input, *per SPA*, to bind dynamic dimensions; ``None``, also in a shape, keeps
        the
            model's own. Inputs after the last shape keep their own too, except symbols that are bound elsewhere (the
            mask of an image). The batch of a SPA is then that of the call divided by the number of SPA.
        input_name: names of the inputs in the order the caller passes them; empty keeps the model's order.
        dtype: ``"float32"`` or ``"float16"``, on some targets ``"bfloat16"`` or ``"int8"``; ``None``: the target's
        default. pass_path: Python file with optimisation passes, by any name :func:`find_pass` takes; ``None`` applies
        none. streams: concurrent calls (:meth:`Engine.run_async`), on targets that support it; an engine on the host
        computes
            each call with its share of the cores. 1 gives every call all of them.
        dims: sizes of symbolic dimensions other than the batch, by symbol (``{"seq": (64, 128)}``). A call has one of
        them
            in each; a target whose plans have fixed shapes has a plan for each combination.
        open_sizes: the same by (input, dimension), for callers that do not know the symbols; input -1 stands for all
        inputs
            with such a dimension; or by a symbol, which the model may lack. One size of a position binds the dimension;
            several, and those of a symbol, are added to ``dims``, so that the symbol is not taken for the batch.
            Dimensions fixed by the model, ``input_size`` or ``dims`` are not changed.
        images: shapes of ``input_size`` are N x C x H x W: for inputs declared as N x H x W x C they are reordered.
    """

    if TYPE_CHECKING:
        ckpt: _GivenPath = _GivenPath()
    else:
        ckpt: Path
    batch_size: int = 1
    input_size: tuple[tuple[int | None, ...], ...] | None = None
    input_name: tuple[str, ...] = ()
    dtype: str | None = None
    if TYPE_CHECKING:
        pass_path: _GivenPathOrNone = _GivenPathOrNone()
    else:
        pass_path: Path | None = None
    _: KW_ONLY
    streams: int = 1
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    open_sizes: Mapping[tuple[int, int] | str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    images: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "ckpt", _path("ckpt", self.ckpt, "the ONNX file"))
        if self.pass_path is not None:
            object.__setattr__(self, "pass_path", _path("pass_path", self.pass_path, "a Python file with passes"))
        _check_count("batch_size", self.batch_size)
        _check_count("streams", self.streams)
        if self.dtype not in (None, *ALL_DTYPES):
            raise ConfigError(f"unknown dtype {self.dtype!r}; use one of: {', '.join(ALL_DTYPES)}")
        for shape in self.input_size or ():
            if not all(size is None or (isinstance(size, int) and size >= 0) for size in shape):  # 0 may be the model's
                raise ConfigError(f"input_size {list(shape)} must hold positive whole numbers")
        object.__setattr__(self, "dims", {symbol: _sizes(symbol, sizes) for symbol, sizes in self.dims.items()})
        object.__setattr__(self, "pass_path", find_pass(self.pass_path))

    def with_shapes(self, ranks: Sequence[int]) -> EngineSpec:
        """Return the same with a shape for every input, those after the last given one open in each dimension.

        Args:
            ranks: number of dimensions of each model input, in the caller's order.

        Raise ConfigError if there are more shapes than inputs.
        """
        given = self.input_size
        if given is None or len(given) == len(ranks):
            return self
        if not given or len(given) > len(ranks):
            raise ConfigError(f"{self.ckpt}: input_size has {len(given)} shapes, the model takes {len(ranks)} inputs")
        return replace(self, input_size=(*given, *((None,) * rank for rank in ranks[len(given) :])))

    def with_images(self, shapes: Sequence[Sequence[int | str | None]]) -> EngineSpec:
        """Return the same with the shapes of images in the inputs' order of dimensions.

        Args:
            shapes: declared shapes of the inputs in the caller's order, dynamic dimensions by their symbol.
        """
        if not self.images or self.input_size is None:
            return self
        found = (_as_declared(given, shape) for given, shape in zip(self.input_size, shapes, strict=True))
        return replace(self, images=False, input_size=tuple(found))

    def with_open_sizes(self, shapes: Sequence[Sequence[int | str | None]]) -> EngineSpec:
        """Return the same with ``open_sizes`` as part of ``input_size`` and ``dims``.

        Args:
            shapes: declared shapes of the inputs in the caller's order, dynamic dimensions by their symbol.

        Raise ConfigError if the model has no such dimension.
        """
        if not self.open_sizes:
            return self
        bound = [list(shape) for shape in self.input_size or [[None] * len(shape) for shape in shapes]]
        dims = dict(self.dims)
        for (place, axis), sizes, by_symbol in _of_each(self.open_sizes, shapes):
            if place >= len(shapes) or axis >= len(shapes[place]):
                raise ConfigError(
                    f"{self.ckpt}: sizes are given for dimension {axis} of input {place}, and its inputs have "
                    f"{', '.join(str(len(shape)) for shape in shapes)} dimensions; "
                    "this is not a model of the task, which needs such an input"
                )
            symbol = shapes[place][axis]
            if isinstance(symbol, int) or bound[place][axis] is not None or symbol in self.dims:
                continue
            if len(sizes) == 1 and not by_symbol:
                bound[place][axis] = sizes[0]
            elif symbol is not None:
                dims[symbol] = tuple(sizes)
        return replace(self, input_size=tuple(map(tuple, bound)), dims=dims, open_sizes={})


def _of_each(
    sizes: Mapping[tuple[int, int] | str, tuple[int, ...]], shapes: Sequence[Sequence[int | str | None]]
) -> Iterator[tuple[tuple[int, int], tuple[int, ...], bool]]:
    """Yield positions, their sizes, and whether they were given by symbol."""
    for key, wanted in sizes.items():
        if isinstance(key, str):
            found = ((each, axis) for each, shape in enumerate(shapes) for axis in range(len(shape)))
            yield from (((each, axis), wanted, True) for each, axis in found if shapes[each][axis] == key)
            continue
        place, axis = key
        if place >= 0:
            yield (place, axis), wanted, False
        else:
            yield from (((each, axis), wanted, False) for each, shape in enumerate(shapes) if axis < len(shape))


def _check_count(name: str, count: int, unit: str = "") -> None:
    if count < 1:
        raise ConfigError(f"{name} {count} must be at least 1{unit}")


def _path(name: str, given: object, what: str) -> Path:
    """Return a path from any path-like object; raise ConfigError if it is not a path, or a path in bytes."""
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise ConfigError(f"{name} {reprlib.repr(given)} is of type {type(given).__name__}; pass the path of {what}")
    if not path:
        raise ConfigError(f"{name} is empty; pass the path of {what}")
    return Path(path)


_CHANNELS = (1, 3)  # possible sizes of the channel dimension of images


def channels_last(shape: Sequence[int | str | None]) -> bool:
    """Return whether a declared shape is N x H x W x C: four dimensions, of which only the last may be the channels."""
    return len(shape) == 4 and shape[3] in _CHANNELS and shape[1] not in _CHANNELS


def _as_declared(given: tuple[int | None, ...], shape: Sequence[int | str | None]) -> tuple[int | None, ...]:
    """Return N x C x H x W in a declared order; the number of channels is the model's if it is fixed."""
    if len(given) != 4 or len(shape) != 4:
        return given
    last = channels_last(shape)
    if last and given[3] == shape[3] and given[1] not in (None, *_CHANNELS):
        return given  # shapes of arrays, as tools open a model
    channels = None if isinstance(shape[3 if last else 1], int) else given[1]
    return (given[0], *given[2:], channels) if last else (given[0], channels, *given[2:])


def _sizes(symbol: str, sizes: Sequence[int]) -> tuple[int, ...]:
    if not sizes or any(not isinstance(size, int) or size < 0 for size in sizes):
        raise ConfigError(f"--dim {symbol}: sizes {list(sizes)} must be one or more whole numbers of at least 0")
    return tuple(sorted(set(sizes)))


def engine_nums() -> int:
    """Return how many SPA a card has, from ``MAX_ENGINE_NUMS`` (default 4; 1 to 8).

    Raise ConfigError if the variable is not a whole number from 1 to 8.
    """
    text = os.environ.get("MAX_ENGINE_NUMS", "4")
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MAX_SPA:
        raise ConfigError(
            f"environment variable MAX_ENGINE_NUMS={text!r} must be a whole number from 1 to {MAX_SPA} "
            "(real cards: 3 or 4)"
        )
    return int(text)


def find_pass(name: str | os.PathLike[str] | None, folder: Path = Path()) -> Path | None:
    """Find a pass file by its path, in ``folder``, or in the zoo's passes; the suffix ``.py`` may be omitted.

    Args:
        name: such as ``my_pass.py``, ``default_pass`` or ``resnet/resnet_pass.py``; ``none`` or ``None``: no passes.
        folder: for relative names, besides the current folder and that of the zoo's passes.

    Raise PassError if the file does not exist.
    """
    if name is None or str(name) == "none":
        return None
    path = Path(name)
    names = [path] if path.suffix == ".py" or not path.name else [path, path.with_name(f"{path.name}.py")]
    places = (root / one for root in (Path(), folder, PASS_PATH) for one in names)
    found = next((place for place in places if os.path.isfile(place)), None)  # false if a name is too long
    if found is None:
        known = sorted(str(p.relative_to(PASS_PATH)) for p in PASS_PATH.rglob("*_pass*.py"))
        raise PassError(f"pass file {name} does not exist; the zoo's own are in {PASS_PATH}: {', '.join(known)}")
    return found
