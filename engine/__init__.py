"""Engines: a model in, numpy arrays through it, whatever computes.

    with open_engine("sdaa", EngineSpec(ckpt=Path("digits_dyn.onnx"), batch_size=64)) as engine:
        scores = engine(images)

This is the whole public surface; modules below are free to change.
"""

from engine.base import (
    PASS_PATH,
    ConfigError,
    DataError,
    Engine,
    EngineError,
    EngineSpec,
    InputError,
    ModelError,
    PassError,
    TargetError,
    TecoInferError,
    TensorSpec,
    engine_nums,
)
from engine.registry import available_targets, default_dtype, open_engine, register
from engine.timeline import Span, Timeline

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
]
