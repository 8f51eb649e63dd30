"""Metadata of the server and of its models, as both protocols return them."""

from __future__ import annotations

from typing import Any

from serve.protocol.datatypes import datatype_of
from serve.protocol.request import Signature, open_shape
from serve.repository import VERSION, ServedNetwork
from tecoinfer_modelzoo.distribution import version

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_repository",
    "schedule_policy",
    "sequence",
    "answer",
    "completions",
)


def server_metadata() -> dict[str, Any]:
    """Return name, version and extensions of the server."""
    return {"name": "teco-serve", "version": version() or "", "extensions": list(EXTENSIONS)}


def model_metadata(found: ServedNetwork) -> dict[str, Any]:
    """Return the protocol's metadata of a network, with its task, labels and batching under ``parameters``.

    A model of several networks has no tensors of its own: ``parameters`` has the names of its networks.
    """
    model, signature = found.model, found.tensors()
    model.check_ready()
    about = model.description
    keys = ("task", "domain", "takes", "images", "texts", "streams", "target", "engine", "simulated")
    parameters: dict[str, Any] = {key: about[key] for key in keys}
    parameters |= {"labels": signature.labels, "batching": signature.joins, "not_batched": signature.reason}
    if not found.network:
        parameters |= {"networks": [f"{model.name}.{name}" for name in model.networks]}
        parameters |= {"not_batched": "it has several networks"}
    if model.steps is not None:
        parameters["sequence"] = _tensors(model.steps)
    return {
        "name": found.name,
        "versions": [VERSION],
        "platform": f"tecoinfer_{about['target']}",
        **_tensors(signature),
        "parameters": parameters,
    }


def _tensors(signature: Signature) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [{"name": one.name, "datatype": datatype_of(one.dtype), "shape": list(open_shape(one))} for one in specs]
        for kind, specs in (("inputs", signature.inputs), ("outputs", signature.outputs))
    }
