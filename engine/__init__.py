"""Engines: load a model and run it on numpy arrays, on any target.

    with open_engine("sdaa", EngineSpec(ckpt=Path("digits_dyn.onnx"), batch_size=64)) as engine:
        scores = engine(images)

Code outside this package imports this face, those of ``engine.backends``, ``engine.batching``, ``engine.host``,
``engine.onnx``, ``engine.passes``, ``engine.sdaa`` and ``engine.training``, and the modules ``engine.measures``,
``engine.signature`` and ``engine.spec``; other modules may change. Existing scripts also import ``engine.base`` and
``engine.tecoinfer_*``. The module of a name is imported on first access.
"""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo import explain as _explain
from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.agreement import Agreement as Agreement
    from engine.backends.quantize import INT8_RECIPES as INT8_RECIPES, quantize as quantize
    from engine.base import ALL_DTYPES as ALL_DTYPES, DTYPES as DTYPES, Engine as Engine
    from engine.historical.declared import declared_shapes as declared_shapes
    from engine.host.cores import host_slots as host_slots, usable_cores as usable_cores
    from engine.host.version_flag import add_version as add_version
    from engine.random_arrays import random_array as random_array
    from engine.registry import (
        available_targets as available_targets,
        default_dtype as default_dtype,
        engine_class as engine_class,
        open_engine as open_engine,
        provider as provider,
        register as register,
    )
    from engine.signature import Array as Array, Dim as Dim, TensorSpec as TensorSpec
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
        record as record,
        recording as recording,
        stage as stage,
    )
    from tecoinfer_modelzoo.errors import (
        ConfigError as ConfigError,
        DataError as DataError,
        DeviceError as DeviceError,
        DeviceOutOfMemory as DeviceOutOfMemory,
        EngineError as EngineError,
        ImageError as ImageError,
        InputError as InputError,
        ModelError as ModelError,
        PassError as PassError,
        TargetError as TargetError,
        TecoInferError as TecoInferError,
    )

_explain()

_HOMES = {
    "engine.agreement": "Agreement",
    "engine.backends.quantize": "INT8_RECIPES quantize",
    "engine.base": "ALL_DTYPES DTYPES Engine",
    "engine.historical.declared": "declared_shapes",
    "engine.host.cores": "host_slots usable_cores",
    "engine.host.version_flag": "add_version",
    "engine.random_arrays": "random_array",
    "engine.registry": "available_targets default_dtype engine_class open_engine provider register",
    "engine.signature": "Array Dim TensorSpec",
    "engine.spec": "GOOD_COSINE PASS_PATH CardOptions EngineSpec Int8Options channels_last engine_nums find_pass",
    "engine.timeline": "Span Timeline is_recording record recording stage",
    "tecoinfer_modelzoo.errors": (
        "ConfigError DataError DeviceError DeviceOutOfMemory EngineError InputError ModelError PassError "
        "ImageError TargetError TecoInferError"
    ),
}
_FORMER = {
    "tecoinfer_modelzoo.errors": "PictureError",
    "engine.backends.ort": "HostSession refusal",
    "engine.batching.batch": "batch_of fits run_sharded split",
    "engine.batching.independence": "batching_of",
    "engine.host.installed": "component_version components variables version_line",
    "engine.measures": "OTHER_SHAPE THRESHOLD ValueStats Difference value_stats differences measure precision_of",
    "engine.signature": "batch_axes input_order numpy_name symbols_of with_batch",
    "engine.training.calls": "SCRATCH KeptTensor OpCall Recorded as_numbers kept_tensor",
    "engine.training.dump": "TrainingDump TrainingDumpWriter open_training_dump read_call",
    "engine.training.hdf5": "needed_h5py",
}
"""Names that scripts import from here and that are in other faces now; not listed by ``dir``."""

__getattr__, __dir__ = lazily(__name__, _HOMES, _FORMER)

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
]  # of `from engine import *`: nothing that needs a runtime
