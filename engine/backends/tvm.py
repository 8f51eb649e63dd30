"""Target ``tvm``: a model compiled by Apache TVM, one plan for each combination of input shapes."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.backends.tvm_plan import (
    SUFFIX,
    PlanKey,
    PlanRecord,
    cached_library,
    library_path,
    read_cached,
    read_record,
    remove_unused,
    sources_hash,
    write_record,
)
from engine.backends.tvm_runtime import Compiler
from engine.base import (
    Array,
    ConfigError,
    Engine,
    EngineError,
    EngineSpec,
    ModelError,
    TecoInferError,
    usable_cores,
)
from engine.batching.batch import batch_of
from engine.batching.dims import open_cache
from engine.host.cores import host_slots
from engine.passes.options import PassOptions
from engine.random_arrays import random_array
from engine.signature import Dim, TensorSpec, with_batch
from tecoinfer_modelzoo.cache import cache_budget
from tecoinfer_modelzoo.files import atomic_replacement, hash_files
from tecoinfer_modelzoo.text import shape_text, user_stacklevel

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

    from engine.backends.tvm_graph import Prepared

_log = logging.getLogger(__name__)

CACHE_VARIABLE = "TECO_TVM_CACHE_MB"
"""Environment variable of the megabytes that compiled plans may take on disk; 0: none is stored."""

CACHE_MB = 1024
"""Its default."""

MOST_WEIGHTS = 2**31 - 2**24  # bytes of a model's weights, in float32 if they are float16
KEPT_PLANS = 16  # plans in memory; the one that was not used for the longest time is removed first
SEED = 20261129  # of the inputs that a compiled plan is compared with ONNX Runtime on
TOLERANCE = 1e-3  # maximum difference of an output, relative to its largest magnitude, and a pass changes 1e-4
REPEATED = 64  # calls of fewer samples that are padded to the first plan before a smaller one is compiled for them
MOST_AHEAD = 1 << 28  # bytes of the inputs of a plan that is compiled before the first call
MOST_PADDED = 1 << 26  # bytes of the inputs of a call to which a smaller one is padded
MANY_PLANS = 8  # number of compiled plans at which a warning recommends to pad inputs to a few sizes

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the inputs of one call, in the caller's order."""

_SessionRun = Callable[[Sequence[Array], int], list[Array]]


@dataclass
class Plan:
    """A compiled plan: its library, its record, its file in the cache, and sessions of it that no call uses."""

    library: Any
    record: PlanRecord
    start: Callable[[Any], _SessionRun]
    file: Path | None = None
    idle: SimpleQueue[_SessionRun] = field(default_factory=SimpleQueue)

    @contextmanager
    def session(self) -> Iterator[_SessionRun]:
        """Lend a session, which computes one call at a time; there are as many as calls side by side."""
        try:
            run = self.idle.get_nowait()
        except Empty:
            run = self.start(self.library)
        try:
            yield run
        finally:
            self.idle.put(run)


class _Compiled(NamedTuple):
    """A compiled library; ``sha256``: of its file in the cache, or empty; ``divided``: its kernels among threads."""

    library: Any
    sha256: str
    guarded: tuple[str, ...]
    divided: bool


class TvmEngine(Engine):
    """Target ``tvm``: Apache TVM, compiled for the host's processor or for ``TECO_TVM_TARGET``.

    A plan has fixed shapes. The first is compiled when the engine is opened: for the model's own batch, else for
    ``batch_size`` samples, with the largest sizes of ``dims``. A call of more samples is computed in padded pieces of
    that batch. So is one of fewer, until there were :data:`REPEATED` of its size: then there is a plan for the next
    power of two. If samples depend on one another, or that is unknown, a call is computed whole by a plan of its own.
    Other sizes get a plan at their first call. Plans are kept in the cache of the zoo (``TECO_CACHE_DIR``), where a
    linker (``g++``, ``clang``) is installed, and need not be compiled again. Beyond :data:`CACHE_VARIABLE` megabytes
    the least recently used ones are removed.

    With ``TECO_TVM_TUNE`` the tiles of its kernels are measured before a plan is compiled
    (:mod:`engine.backends.tvm_tune`).

    With ``streams`` above 1 each call computes with its share of the cores. Float16 means float16 weights, inputs and
    outputs; all arithmetic is float32, since TVM's float16 sums on a processor are float16 too.

    With ``save_engine`` the plan is written beside the model (``<model>.so`` and ``.so.json``). A ``ckpt`` with suffix
    ``.so`` is such a plan: it is loaded without the model, and its code is run, so open only plans that you trust.

    Raises:
        TargetError: TVM, or a device for its target, is missing.
        ModelError: TVM cannot compile the model, or the saved plan is damaged, or for another version or processor.
        ConfigError: a size is missing that saving needs, or the plan cannot be saved.
    """

    outputs_owned = inputs_untouched = concurrent_calls = True
    graph = "marked"

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.streams = min(spec.streams, usable_cores())
        self._threads = max(1, usable_cores() // self.streams)
        self._plans: dict[Shapes, Plan] = {}
        self._compiled = 0  # plans made for sizes that were not announced
        self._smaller: dict[int, int] = {}  # samples of a smaller plan -> calls that it would have computed
        self._most_bytes = cache_budget(CACHE_VARIABLE, CACHE_MB)
        self._making = threading.Lock()
        self._model: ModelProto | None = None
        self.compile_seconds = 0.0
        """Seconds that lowering and compiling took so far; near 0 if every plan came from the cache."""
        self._compiler = Compiler(self._threads)
        self._is_saved = spec.ckpt.suffix == SUFFIX
        self._passes_checked = False
        if self._is_saved:
            self._open_saved()
        else:
            self._open_model()

    # ------------------------------------------------------------------------------------------------------- opening

    def _open_model(self) -> None:
        from engine.batching.independence import batching_of
        from engine.onnx.load import file_hash, load_model
        from engine.onnx.shapes import check_types
        from engine.onnx.view import metadata, signature

        model = load_model(self.spec.ckpt, self._refuse_large)
        check_types(model)
        self.metadata = metadata(model)
        self._options = PassOptions.load(self.spec.pass_path)
        inputs, outputs, dims = signature(model)
        self._dims: dict[str, list[Dim]] = dict(zip([t.name for t in inputs], dims, strict=True))
        self.bind(inputs, outputs, dims, partial(batching_of, model))
        _refuse_texts((*inputs, *outputs))
        self._identity = (file_hash(self.spec.ckpt), hash_files(self.spec.pass_path) if self.spec.pass_path else "")
        self._keep(self._stored(model))
        self._rows = self.static_batch or self.spec.batch_size
        shapes = self._announced()
        if self.spec.save_engine:
            self._check_saving(shapes)
        if shapes is not None and (self.spec.save_engine or self._bytes(shapes) <= MOST_AHEAD):
            plan = self._plan(shapes)
            if self.spec.save_engine:
                self._save(plan)
            if self.independent and not self.spec.dims:
                self._model = None  # read again if another plan is needed

    def _refuse_large(self, model: ModelProto) -> None:
        """Raise ModelError if the weights, as float32, do not fit a plan: code addresses 2 GB of its own library."""
        from engine.onnx.view import tensors

        size = sum(prod(tensor.dims) * _width(tensor) for tensor in tensors(model.graph))
        if size > MOST_WEIGHTS:
            raise ModelError(
                f"{self.spec.ckpt} has {size / 1e9:.1f} GB of weights, and a compiled plan, which contains them, holds "
                f"{MOST_WEIGHTS / 1e9:.1f} GB; use --target onnx"
            )

    def _keep(self, stored: ModelProto) -> None:
        """Take the dtypes of the model in the requested precision, and keep the model in float32."""
        from engine.onnx.view import signature
        from engine.onnx.widen import widen

        inputs, outputs, _ = signature(stored)
        dtypes = {tensor.name: tensor.dtype for tensor in inputs}
        floats = [dtype for dtype in dtypes.values() if dtype.kind == "f"]
        if floats and all(dtype == np.float16 for dtype in floats):
            self.dtype = "float16"  # of the model, for any requested dtype
        self.inputs = [replace(tensor, dtype=dtypes[tensor.name]) for tensor in self.inputs]
        self.outputs = [replace(own, dtype=new.dtype) for own, new in zip(self.outputs, outputs, strict=True)]
        self._order = [tensor.name for tensor in inputs]
        self._model = widen(stored)

    def _stored(self, model: ModelProto) -> ModelProto:
        """Return the model in the requested precision."""
        if self.dtype != "float16" or not self._options.need_convert:
            return model
        from engine.onnx.float16 import to_float16

        return to_float16(model, self._options.keeps_float32, self._options.skip_input_name)

    def _announced(self) -> Shapes | None:
        """Return the shapes of a usual call, the largest if there are several; ``None`` if a size is unknown."""
        growing = open_cache(self.inputs, self.spec.dims)
        if growing is not None:
            raise ConfigError(f"{self.spec.ckpt}: {growing}")
        found = []
        for tensor in self.inputs:
            symbols = tensor.symbols or (None,) * len(tensor.shape)
            sizes = [
                self.spec.dims.get(symbol or "", (None,))[-1] if size is None else size
                for symbol, size in zip(symbols, tensor.shape, strict=True)
            ]
            if any(size is None and axis != tensor.batch_axis for axis, size in enumerate(sizes)):
                return None
            found.append(with_batch(sizes, tensor.batch_axis, self._rows))
        return tuple(found)

    def _bytes(self, shapes: Shapes) -> int:
        return sum(prod(shape) * tensor.dtype.itemsize for shape, tensor in zip(shapes, self.inputs, strict=True))

    def _check_saving(self, shapes: Shapes | None) -> None:
        several = [symbol for symbol, sizes in self.spec.dims.items() if len(sizes) > 1]
        if several:
            raise ConfigError(
                f"{self.spec.ckpt}: a saved plan has one size of each dimension, and {several[0]} has several; give "
                "one, or do not save it"
            )
        if shapes is None:
            raise ConfigError(
                f"{self.spec.ckpt}: a saved plan has fixed shapes; give all sizes (--dim, --input_shapes)"
            )

    # ----------------------------------------------------------------------------------------------------- saved plans

    def _open_saved(self) -> None:
        """Load a saved plan, which the user named; raise ModelError if it was made for something else."""
        path, compiler = self.spec.ckpt, self._compiler
        if not path.is_file():
            raise ModelError(f"{path} does not exist; check ckpt")
        record = read_record(path)
        key = record.key
        for what, have, want in (
            ("TVM", key.tvm, compiler.version),
            ("target", record.kind, compiler.kind),
            ("dtype", key.dtype, self.spec.dtype or key.dtype),
        ):
            if have != want:
                raise ModelError(f"{path} was compiled for {what} {have}, not {want}; save it again from the ONNX file")
        if not compiler.runs(record.processor):
            raise ModelError(
                f"{path} was compiled for processor {record.processor.partition(' ')[0]} with features that this one "
                "lacks or adds; save it again from the ONNX file"
            )
        self.dtype, self.metadata = key.dtype, record.metadata
        names = [tensor.name for tensor in record.inputs]
        order = self.spec.input_name if sorted(self.spec.input_name) == sorted(names) else names
        sizes = tuple(key.shapes[name] for name in order)
        self.spec = replace(self.spec, input_size=sizes, dims={}, open_sizes={}, images=False)
        self.bind(record.inputs, record.outputs, record.dims, lambda _: record.batching)
        self._rows = sizes[self.lead][self.batch_axis] if any(tensor.batched for tensor in self.inputs) else 1
        self._order = names
        self._plans[sizes] = Plan(compiler.load(path), record, compiler.session)

    def _save(self, plan: Plan) -> None:
        path = library_path(self.spec.ckpt)
        try:
            if plan.file is not None:  # TVM cannot write a library that it has loaded
                with atomic_replacement(path, SUFFIX) as temporary:
                    shutil.copyfile(plan.file, temporary)
                    os.chmod(temporary, 0o600)
                    digest = hash_files(temporary)
            else:
                digest = self._write(path, plan.library)
            if not digest:
                raise ConfigError(f"{path} cannot be written: TVM needs a linker; install g++ or clang")
            write_record(path, replace(plan.record, library_sha256=digest))
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}; free space or choose another folder"
            ) from error

    def _write(self, path: Path, library: Any) -> str:
        """Write a library; return its SHA-256, or "" where the host has no linker."""
        if not self._compiler.links:
            return ""
        with atomic_replacement(path, SUFFIX) as temporary:
            self._compiler.save(library, temporary)
            os.chmod(temporary, 0o600)
            return hash_files(temporary)

    # --------------------------------------------------------------------------------------------------------- plans

    def _plan(self, shapes: Shapes) -> Plan:
        """Return the plan for these shapes, from memory, from the cache, or compiled."""
        with self._making:
            plan = self._plans.pop(shapes, None)
            if plan is None:
                self._check_new(shapes)
                plan = self._made(shapes)
            self._plans[shapes] = plan  # the newest is the last
            while len(self._plans) > KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            return plan

    def _check_new(self, shapes: Shapes) -> None:
        if self._is_saved:
            shown = ", ".join(map(shape_text, shapes))
            raise EngineError(f"{self.spec.ckpt} has no plan for inputs of shape {shown}; open the ONNX file instead")
        self._compiled += 1
        if self._compiled == MANY_PLANS:
            warnings.warn(
                f"{self.spec.ckpt}: target tvm compiled {MANY_PLANS} plans, one for each combination of sizes; pad the "
                "inputs to few sizes, and pass them as --dim",
                stacklevel=user_stacklevel(),
            )

    def _made(self, shapes: Shapes) -> Plan:
        key, compiler = self._key(shapes), self._compiler
        path = cached_library(key) if self._most_bytes else None
        record = None if path is None else read_cached(path, key)
        if path is not None and record is not None:
            try:
                return Plan(compiler.load(path), record, compiler.session, path)
            except ModelError as error:
                _log.info("%s", error)
        start = time.perf_counter()
        made = self._compile(key, path)
        self.compile_seconds += time.perf_counter() - start
        record = replace(self._record(key, made.guarded, made.divided), library_sha256=made.sha256)
        _log.info("%s: compiled for %s in %.1f s", self.spec.ckpt, key.shapes, time.perf_counter() - start)
        if path is None or not made.sha256:
            return Plan(made.library, record, compiler.session)
        try:
            write_record(path, record)
            remove_unused(path, self._most_bytes)
        except OSError as error:
            _log.info("%s is not cached: %s", path, error)
        return Plan(made.library, record, compiler.session, path)

    def _key(self, shapes: Shapes) -> PlanKey:
        by_name = dict(zip([tensor.name for tensor in self.inputs], shapes, strict=True))
        compiler, (model, passes) = self._compiler, self._identity
        return PlanKey(
            model_sha256=model,
            pass_sha256=passes,
            shapes={name: by_name[name] for name in self._order},
            dtype=self.dtype,
            target=compiler.target,
            schedule=compiler.schedule,
            tvm=compiler.version,
            sources=sources_hash(),
        )

    def _record(self, key: PlanKey, guarded: Sequence[str], divided: bool) -> PlanRecord:
        inputs = {tensor.name: tensor for tensor in self.inputs}
        return PlanRecord(
            key=key,
            library_sha256="",
            inputs=[inputs[name] for name in self._order],
            outputs=self.outputs,
            dims=[self._dims[name] for name in self._order],
            independent=self.independent,
            reason=self.batching.why_dependent,
            guarded=list(guarded),
            divided=divided,
            metadata=dict(self.metadata),
            processor=self._compiler.processor,
        )

    def _compile(self, key: PlanKey, path: Path | None) -> _Compiled:
        """Return the library for a key, which is written to a path without its record."""
        from engine.backends.tvm_graph import prepared
        from engine.onnx.load import load_model

        if self._model is None:
            self._keep(self._stored(load_model(self.spec.ckpt)))
        assert self._model is not None  # noqa: S101 -- for the type checker
        try:
            loops = self._compiler.loops
            made = prepared(self._model, self._options, key.shapes, self._check_shapes(key), loops)
            self._passes_checked = True
            found = self._built(made, path)
            if self._differs(key, found):
                found = self._built(made, path, tiled=False)
                if problem := self._differs(key, found):
                    warnings.warn(
                        f"{self.spec.ckpt}: on random inputs TVM's result is not that of ONNX Runtime: {problem}; "
                        "find the node with teco compare --b tvm, or use --target onnx",
                        stacklevel=user_stacklevel(),
                    )
            return found
        except ModelError as error:
            raise ModelError(f"{self.spec.ckpt}: {error}") from error

    def _built(self, made: Prepared, path: Path | None, *, tiled: bool = True) -> _Compiled:
        """Compile a graph, and write and load the library: to run it unwritten would generate its code twice."""
        library, divided = self._compiler.build(made.model, tiled)
        if problem := self._compiler.problem:
            warnings.warn(
                f"{self.spec.ckpt}: tiles were not measured for all kernels: {problem}; the others have fixed tiles",
                stacklevel=user_stacklevel(),
            )
        digest = ""
        if path is not None and not self._compiler.problem:
            try:
                digest = self._write(path, library)
                library = self._compiler.load(path) if digest else library
            except (OSError, ModelError) as error:
                _log.info("%s is not cached: %s", path, error)
                digest = ""
        return _Compiled(library, digest, made.guarded, divided)

    def _differs(self, key: PlanKey, made: _Compiled) -> str:
        """Run a library and the model on random inputs; return how a float output differs from ONNX Runtime's, or "".

        Models that ONNX Runtime cannot run on such inputs (floats are normal, integers 0 or 1) are not compared.
        """
        from engine.backends.ort import HostSession
        from engine.batching.independence import difference

        assert self._model is not None  # noqa: S101 -- for the type checker
        rng = np.random.default_rng(SEED)
        try:
            session = HostSession(self._model, source=self.spec.ckpt)
            drawn = {t.name: random_array(rng, key.shapes[t.name], t.dtype, lean=True) for t in session.inputs}
            wanted = session.run_named(drawn)
            threads = self._threads if made.divided else 0
            found = self._compiler.session(made.library)([drawn[name] for name in self._order], threads)
        except TecoInferError as error:
            _log.info("%s: the compiled plan is not compared with ONNX Runtime: %s", self.spec.ckpt, error)
            return ""
        problems = (
            (tensor.name, difference(want, got.astype(want.dtype, copy=False), TOLERANCE))
            for tensor, want, got in zip(session.outputs, wanted, found, strict=False)
            if want.dtype.kind == "f"
        )
        return next((f"output {name!r}: {problem}" for name, problem in problems if problem), "")

    def _check_shapes(self, key: PlanKey) -> dict[str, tuple[int, ...]] | None:
        """Return the shapes that the pass is checked with, two samples of a dynamic batch; ``None``: it was checked."""
        if self._passes_checked:
            return None
        rows = self.static_batch or min(self._rows, 2)
        axes = {tensor.name: tensor.batch_axis for tensor in self.inputs}
        return {
            name: tuple(rows if axis == axes[name] else size for axis, size in enumerate(shape))
            for name, shape in key.shapes.items()
        }

    # ------------------------------------------------------------------------------------------------------- running

    def describe(self) -> str:
        """Return TVM's version, its target and the precision."""
        computes = " (computed in float32)" if self.dtype == "float16" else ""
        return f"TVM {self._compiler.version} {self._compiler.name}, {self.dtype}{computes}"

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Run any batch: in pieces of the plan's batch, or whole if its samples cannot be split."""
        total = batch_of(inputs, self.inputs)
        size = self._size(total, inputs)
        return self._run(inputs) if size == total else self.batching.in_pieces(self, self._run, inputs, size)

    def _size(self, total: int, inputs: Sequence[Array]) -> int:
        """Return the samples of the plan that computes a call of so many: its own number if it cannot be split."""
        if self.static_batch is not None or self._is_saved or (self.independent and total > self._rows):
            return self._rows
        if not self.independent:
            return total
        smaller = min(self._rows, 1 << (total - 1).bit_length())
        self._smaller[smaller] = calls = self._smaller.get(smaller, 0) + 1
        padded = sum(array.nbytes for array in inputs) // max(total, 1) * self._rows
        # Compiling takes as long as many calls, unless there is much to pad.
        return smaller if calls > REPEATED or padded > MOST_PADDED else self._rows

    def _run(self, arrays: list[Array]) -> list[Array]:
        plan = self._plan(tuple(array.shape for array in arrays))
        by_name = dict(zip([tensor.name for tensor in self.inputs], arrays, strict=True))
        fed = [_widened(by_name[name]) for name in self._order]
        with host_slots().taken(urgent=True) if self._threads == 1 else nullcontext(), plan.session() as run:
            found = run(fed, self._threads if plan.record.divided else 0)
        if plan.record.guarded:
            self._check_indices(plan.record.guarded, found.pop())
        with np.errstate(over="ignore"):
            return [a.astype(tensor.dtype, copy=False) for a, tensor in zip(found, self.outputs, strict=True)]

    def _check_indices(self, guarded: Sequence[str], errors: Array) -> None:
        if errors.any():
            names = [name for name, error in zip(guarded, errors, strict=True) if error]
            raise EngineError(
                f"{self.spec.ckpt}: an index of node {names[0]!r} is out of the range of its table; check the inputs"
            )

    def close(self) -> None:
        """Free the plans and the model."""
        self._plans.clear()
        self._model = None


def _width(tensor: TensorProto) -> int:
    """Return the bytes of an element of a weight in a plan: float16 is computed as float32."""
    from onnx import TensorProto, helper

    if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        return 4
    try:
        return int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except KeyError:  # no type, or newer than onnx: the runtime refuses it
        return 0


def _widened(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _refuse_texts(tensors: Sequence[TensorSpec]) -> None:
    for tensor in tensors:
        if tensor.dtype == np.object_:
            raise ModelError(f"{tensor.name!r} holds texts, which TVM has no type for; use --target onnx")
