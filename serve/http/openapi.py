"""The OpenAPI description: FastAPI's of the routes, and a path for the answers of each model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serve.http.forms import FORM
from serve.http.media import ENDINGS, IMAGES, TEXTS
from serve.protocol.datatypes import DATATYPES

if TYPE_CHECKING:
    from fastapi import FastAPI

    from serve.repository import Repository, ServedModel

_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "datatype": {"type": "string", "enum": list(DATATYPES)},
        "parameters": {"type": "object"},
        "data": {"type": "array", "description": "values, flat or nested; missing for a binary tensor"},
    },
}
_ERROR = {
    "description": "an error in one line",
    "content": {
        "application/json": {
            "schema": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
        }
    },
}
_ERRORS = {str(status): _ERROR for status in (400, 401, 404, 413, 415, 429, 500, 503, 504)}

INFER: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "id": {"type": "string"},
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "priority": {"type": "integer", "minimum": 0},
                                "timeout": {"type": "integer", "minimum": 0, "description": "microseconds"},
                                "binary_data_output": {"type": "boolean"},
                            },
                        },
                        "inputs": {"type": "array", "items": _TENSOR},
                        "outputs": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
                            },
                        },
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "responses": _ERRORS,
}
"""Of inference."""

_ANSWERS = {
    "type": "object",
    "required": ["model_name", "answers", "timing"],
    "properties": {
        "model_name": {"type": "string"},
        "simulated": {"type": "boolean", "description": "the engine is a simulated card"},
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "answer"],
                "properties": {
                    "name": {"type": "string"},
                    "answer": {"description": "plain data of the task; null if the sample has no answer"},
                    "text": {"type": "string"},
                    "error": {"type": "string", "description": "why the sample has no answer"},
                    "nan_input": {"type": "boolean"},
                    "nan_output": {"type": "boolean"},
                    "rendering": {
                        "type": "object",
                        "properties": {"media_type": {"type": "string"}, "base64": {"type": "string"}},
                    },
                },
            },
        },
        "timing": {"type": "object", "additionalProperties": {"type": "number", "description": "seconds"}},
    },
}


def _body(media: tuple[str, ...]) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}
    content: dict[str, Any] = {one: {"schema": file} for one in media}
    content[FORM] = {"schema": {"type": "object", "additionalProperties": file}}
    return {"required": True, "content": content}


def _answer(media: tuple[str, ...]) -> dict[str, Any]:
    good = {"description": "the answers", "content": {"application/json": {"schema": _ANSWERS}}}
    return {"requestBody": _body(media), "responses": {"200": good, **_ERRORS}}


ANSWER = _answer(tuple(ENDINGS))
"""Of answers of any model."""


def described(app: FastAPI, repository: Repository) -> dict[str, Any]:
    """Return the description of the routes, and of the answers of each loaded model with a task."""
    from fastapi.openapi.utils import get_openapi

    found: dict[str, Any] = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for model in repository.models.values():
        if model.is_ready and model.description["task"] is not None:
            found["paths"][f"/v2/models/{model.name}/answer"] = {"post": _of_model(model)}
    return found


def _of_model(model: ServedModel) -> dict[str, Any]:
    about = model.description
    media = IMAGES if about["images"] else TEXTS if about["texts"] else tuple(ENDINGS)
    about_task = f"Answer by the task {about['task']}. --data_path of its scripts takes: {about['takes']}."
    rendering = {"name": "rendering", "in": "query", "schema": {"type": "boolean", "default": False}}
    named = {"summary": f"Answer of {model.name}", "operationId": f"answer_{model.name}", "description": about_task}
    return {**named, "parameters": [rendering], **_answer(media)}
