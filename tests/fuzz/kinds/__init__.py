"""Table of the kinds of attacks: a row here and a module with the names of :class:`tests.fuzz.case.Kind`."""

from __future__ import annotations

import importlib
from typing import cast

from tests.fuzz.case import Kind

KINDS = {
    "annotations": "annotation files, masks, maps and label files of sets of images, sounds and sentences",
    "archives": "packages, archives and tables of `teco fetch`",
    "audio": "sound files, and lists of them",
    "caches": "what the zoo keeps for itself: trial cache, kernels, status files of cards",
    "clicks": "ratings, clicks, histories and feature tables of recommendation",
    "configs": "model.yaml, pass files, test cases of tecoexec, cards",
    "engines": "engines of a third party that fail, return something else, or use their buffers again",
    "environments": "environments of reinforcement learning, and recorded episodes",
    "flags": "command lines of every command",
    "graphs": "graph sets and molecules",
    "identity": "runs taken up after a file they read was changed in place",
    "interrupts": "Ctrl-C at any moment, once or twice",
    "journals": "journals and records of interrupted runs",
    "models": "ONNX files, on every target",
    "notes": "what models store for their preprocessing",
    "images": "images, and what lies where an image should",
    "results": "results of runs that are killed, lose their output or share a folder",
    "saved": "saved engines",
    "serving": "requests of the network protocols",
    "steps": "scripts of models under `teco check`",
    "texts": "text tables, question sets, rankings, tokenizers",
    "tools": "the tools of `teco` on broken models and on broken results of their own",
    "video": "clips, and what is not a clip",
}
"""Short descriptions by module name."""


def kind(name: str) -> Kind:
    """Return a kind by its name in :data:`KINDS`."""
    return cast(Kind, importlib.import_module(f"tests.fuzz.kinds.{name}"))
