"""Metadata of the server and of its models, as both protocols return them."""

from __future__ import annotations

from typing import Any

from serve.protocol.datatypes import datatype_of
from serve.protocol.request import open_shape
from serve.repository import VERSION, ServedModel
from tecoinfer_modelzoo.distribution import version

EXTENSIONS = ("binary_tensor_data", "classification", "model_repository", "schedule_policy", "answer", "completions")


def server_metadata() -> dict[str, Any]:
    """Return name, version and extensions of the server."""
    return {"name": "teco-serve", "version": version() or "", "extensions": list(EXTENSIONS)}


def model_metadata(model: ServedModel) -> dict[str, Any]:
    """Return the protocol's metadata of a model, with its task, labels and batching under ``parameters``."""
    model.check_ready()
    signature, about = model.signature, model.description
    inputs, outputs = (
        [{"name": one.name, "datatype": datatype_of(one.dtype), "shape": list(open_shape(one))} for one in specs]
        for specs in (signature.inputs, signature.outputs)
    )
    keys = ("task", "domain", "labels", "takes", "images", "texts", "streams", "target", "engine", "simulated")
    parameters = {key: about[key] for key in keys} | {"batching": signature.joins, "not_batched": signature.reason}
    return {
        "name": model.name,
        "versions": [VERSION],
        "platform": f"tecoinfer_{about['target']}",
        "inputs": inputs,
        "outputs": outputs,
        "parameters": parameters,
    }
