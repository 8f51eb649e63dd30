"""Engines of the vendors, one file each (:mod:`engine.registry` lists them) and ONNX Runtime sessions."""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.backends.ort import HostSession as HostSession, refusal as refusal

_HOMES = {"engine.backends.ort": "HostSession refusal"}
__getattr__, __dir__ = lazily(__name__, _HOMES)
