"""Engines: a model in, numpy arrays through it, whatever computes.

    with open_engine("sdaa", EngineSpec(ckpt=Path("digits_dyn.onnx"), batch_size=64)) as engine:
        scores = engine(images)

Outside this package only ``engine``, ``engine.onnx``, ``engine.passes`` and ``engine.sdaa`` are imported, and
``engine.base`` and ``engine.tecoinfer_*`` by scripts that always did; other modules are free to change. A name's module
is imported when the name is first asked for.
"""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo import explain as _explain
from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.agreement import Agreement as Agreement
    from engine.backends.ort import HostSession as HostSession, refusal as refusal
    from engine.backends.quantize import INT8_RECIPES as INT8_RECIPES, quantize as quantize
    from engine.base import ALL_DTYPES as ALL_DTYPES, DTYPES as DTYPES, Engine as Engine
    from engine.batching.batch import batch_of as batch_of, fits as fits, run_sharded as run_sharded, split as split
    from engine.batching.independence import batching_of as batching_of
    from engine.historical.declared import declared_shapes as declared_shapes
    from engine.host.components import (
        component_version as component_version,
        components as components,
        variables as variables,
        version_line as version_line,
    )
    from engine.host.cores import host_slots as host_slots, usable_cores as usable_cores
    from engine.host.hdf5 import needed_h5py as needed_h5py
    from engine.host.training_calls import (
        SCRATCH as SCRATCH,
        KeptTensor as KeptTensor,
        OpCall as OpCall,
        Recorded as Recorded,
        as_numbers as as_numbers,
        kept_tensor as kept_tensor,
    )
    from engine.host.training_dump import (
        TrainingDump as TrainingDump,
        TrainingDumpWriter as TrainingDumpWriter,
        open_training_dump as open_training_dump,
        read_call as read_call,
    )
    from engine.host.version_flag import add_version as add_version
    from engine.measures import (
        OTHER_SHAPE as OTHER_SHAPE,
        THRESHOLD as THRESHOLD,
        Census as Census,
        Difference as Difference,
        census as census,
        differences as differences,
        measure as measure,
        precision_of as precision_of,
    )
    from engine.random_arrays import random_array as random_array
    from engine.registry import (
        available_targets as available_targets,
        default_dtype as default_dtype,
        engine_class as engine_class,
        open_engine as open_engine,
        provider as provider,
        register as register,
    )
    from engine.signature import (
        Array as Array,
        Dim as Dim,
        TensorSpec as TensorSpec,
        batch_axes as batch_axes,
        input_order as input_order,
        numpy_name as numpy_name,
        symbols_of as symbols_of,
        with_batch as with_batch,
    )
    from engine.spec import (
        GOOD_COSINE as GOOD_COSINE,
        PASS_PATH as PASS_PATH,
        CardOptions as CardOptions,
        EngineSpec as EngineSpec,
        Int8Options as Int8Options,
        channels_last as channels_last,
        engine_nums as engine_nums,
        find_pass as find_pass,
    )
    from engine.timeline import (
        Span as Span,
        Timeline as Timeline,
        is_recording as is_recording,
        recording as recording,
        stage as stage,
    )
    from tecoinfer_modelzoo.errors import (
        ConfigError as ConfigError,
        DataError as DataError,
        DeviceError as DeviceError,
        DeviceOutOfMemory as DeviceOutOfMemory,
        EngineError as EngineError,
        InputError as InputError,
        ModelError as ModelError,
        PassError as PassError,
        PictureError as PictureError,
        TargetError as TargetError,
        TecoInferError as TecoInferError,
    )

_explain()

_HOMES = {
    "engine.base": (
        "ALL_DTYPES",
        "DTYPES",
        "Engine",
    ),
    "engine.historical.declared": ("declared_shapes",),
    "tecoinfer_modelzoo.errors": (
        "ConfigError",
        "DataError",
        "DeviceError",
        "DeviceOutOfMemory",
        "EngineError",
        "InputError",
        "ModelError",
        "PassError",
        "PictureError",
        "TargetError",
        "TecoInferError",
    ),
    "engine.agreement": ("Agreement",),
    "engine.backends.quantize": ("INT8_RECIPES", "quantize"),
    "engine.spec": (
        "GOOD_COSINE",
        "PASS_PATH",
        "CardOptions",
        "EngineSpec",
        "Int8Options",
        "channels_last",
        "engine_nums",
        "find_pass",
    ),
    "engine.signature": (
        "Array",
        "Dim",
        "TensorSpec",
        "batch_axes",
        "input_order",
        "numpy_name",
        "symbols_of",
        "with_batch",
    ),
    "engine.registry": (
        "available_targets",
        "default_dtype",
        "engine_class",
        "open_engine",
        "provider",
        "register",
    ),
    "engine.timeline": (
        "Span",
        "Timeline",
        "is_recording",
        "recording",
        "stage",
    ),
    "engine.measures": (
        "OTHER_SHAPE",
        "THRESHOLD",
        "Census",
        "Difference",
        "census",
        "differences",
        "measure",
        "precision_of",
    ),
    "engine.batching.independence": ("batching_of",),
    "engine.random_arrays": ("random_array",),
    "engine.batching.batch": ("batch_of", "fits", "run_sharded", "split"),
    "engine.backends.ort": (
        "HostSession",
        "refusal",
    ),
    "engine.host.components": (
        "component_version",
        "components",
        "variables",
        "version_line",
    ),
    "engine.host.cores": (
        "host_slots",
        "usable_cores",
    ),
    "engine.host.training_calls": (
        "SCRATCH",
        "KeptTensor",
        "OpCall",
        "Recorded",
        "as_numbers",
        "kept_tensor",
    ),
    "engine.host.hdf5": ("needed_h5py",),
    "engine.host.training_dump": (
        "TrainingDump",
        "TrainingDumpWriter",
        "open_training_dump",
        "read_call",
    ),
    "engine.host.version_flag": ("add_version",),
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

__all__ = [
    "PASS_PATH",
    "ConfigError",
    "DataError",
    "Engine",
    "EngineError",
    "EngineSpec",
    "InputError",
    "ModelError",
    "PassError",
    "Span",
    "TargetError",
    "TecoInferError",
    "TensorSpec",
    "Timeline",
    "available_targets",
    "default_dtype",
    "engine_nums",
    "open_engine",
    "register",
]  # what `from engine import *` brings: nothing that needs a runtime
