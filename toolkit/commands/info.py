"""Show one model: its folder, cases, flags, files, ONNX inputs and outputs, and its stored metrics."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import ModelError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.flags import add_json_flag, separated
from tecoinfer_modelzoo.trees import walk
from toolkit.arguments import Parser, add_zoo_flag
from toolkit.commands.list import describe
from toolkit.data_page import rows_of_model
from toolkit.output import print_or_write
from toolkit.scorecard import direction_words
from toolkit.zoo import ZOO, Model, find_model, load_zoo, summary

SCHEMA_VERSION = 1  # version of the JSON; raised when a field is removed or changes its meaning
WIDTH = 110
"""Largest number of characters of a wrapped line."""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print the information on a model."""
    parser = Parser("teco info", __doc__)
    parser.add_argument("model", metavar="MODEL", help="name, domain/name, case name or path")
    add_zoo_flag(parser)
    add_json_flag(parser)
    args = parser.parse_args(separated(argv))
    model, _ = find_model(args.model, load_zoo(root, args.zoo).models)
    found = gather(model)
    data = {"schema_version": SCHEMA_VERSION, "kind": "model", **found}
    print_or_write(data, args.json, lines(found))
    return 0


def gather(model: Model) -> dict[str, Any]:
    """Return the information on a model as plain data."""
    steps = [
        {"case": case.name, "step": step.name, "script": step.run_file, "arguments": step.arguments}
        for case, step in model.steps()
    ]
    walked = (Path(folder, name) for folder, _, names in walk(model.folder) for name in names)
    files = sorted(file for file in walked if os.path.isfile(file) and "__pycache__" not in file.parts)
    return {
        **describe(model),
        "summary": summary(model.folder / "README.md"),
        "licences": [
            {"what": row.what, "licence": row.licence, "attribution": row.attribution, "use": row.use}
            for row in rows_of_model(model)
        ],
        "runs": steps,
        "flags": {step: model.flags(step) for step in model.scripts},
        "files": {file.relative_to(model.folder).as_posix(): file.stat().st_size for file in files},
        "onnx": {file.name: _signature(file) for file in files if file.suffix == ".onnx"},
        "outputs": {file.name: _outputs(file) for file in files if file.suffix == ".onnx"},
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return the lines of text for the result of :func:`gather`."""
    text = wrap(f"{found['name']}: {found['summary'] or '(no README)'}", "")
    where = found["path"] if found["place"] != ZOO else str(Path(found["root"], found["path"]))
    text += ["", f"path     {where} ({found['place']})"]
    text += [f"copy     teco fetch {found['domain']}/{found['name']}"] if found["place"] == ZOO else []
    nothing = ["metric   none stored; 'teco check CASE --update' stores it"]
    text += [_metric(entry) for entry in found["metric"]] or nothing
    text += ["", "cases" if found["runs"] else "cases: none"]
    text += [
        f"  {run['case']} {run['step']}: {shlex.join([run['script'], *run['arguments']])}" for run in found["runs"]
    ]
    text += ["", "flags"]
    for step, flags in found["flags"].items():
        text += wrap(f"{step}: {' '.join(flags) or 'none'}")
    text += ["", "ONNX files" if found["onnx"] else f"ONNX files: none; 'teco run {found['name']} export' makes them"]
    for name, signature in found["onnx"].items():
        text.append(f"  {name}: {signature}")
        text += [f"    {one['text']}" for one in found["outputs"][name]]
    if found["licences"]:
        text += ["", "data and weights"]
        text += [line for row in found["licences"] for line in wrap(f"{row['what']}: {row['licence']}; {row['use']}")]
    return [*text, "", "files", *_files(found["files"])]


def _metric(entry: dict[str, Any]) -> str:
    lower = f" ({direction_words(entry)})" if direction_words(entry) else ""
    return "metric   {case}: {metric} {value} on {target}".format(**entry) + lower


def wrap(text: str, indent: str = "  ") -> list[str]:
    """Return a text wrapped into lines, with a hanging indent; words and flags are not broken."""
    wrapper = textwrap.TextWrapper(WIDTH, indent, indent + "  ", break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


def _files(sizes: dict[str, int]) -> list[str]:
    """Return a line per file of the folder, and one per subfolder, since sample data may be hundreds of files."""
    own = [f"  {name} ({size} bytes)" for name, size in sizes.items() if "/" not in name]
    folders = sorted({name.partition("/")[0] for name in sizes if "/" in name})
    inside = {folder: [size for name, size in sizes.items() if name.startswith(f"{folder}/")] for folder in folders}
    return own + [f"  {folder}/ ({len(found)} files, {sum(found)} bytes)" for folder, found in inside.items()]


def _signature(file: Path) -> str:
    from engine.onnx import dims, graph_inputs, load_model

    try:
        graph = load_model(file)
    except ModelError as error:
        return str(error)
    inputs = ", ".join(f"{info.name} {_shape(dims(info))}" for info in graph_inputs(graph))
    outputs = ", ".join(f"{info.name} {_shape(dims(info))}" for info in graph.graph.output)
    return f"{inputs} -> {outputs}"


def _outputs(file: Path) -> list[dict[str, Any]]:
    """Return the meaning of each output, as tasks read it by default (:mod:`utils.outputs`)."""
    from engine.onnx import load_model, metadata, signature
    from utils.outputs import Forms
    from utils.stored import ModelMetadata

    try:
        model = load_model(file)
        forms = Forms(file, signature(model)[1], ModelMetadata(metadata(model), file)).all()
    except ModelError as error:
        return [{"name": None, "error": str(error), "text": f"outputs: {error}"}]
    return [{**one.as_json(), "text": str(one)} for one in forms]


def _shape(shape: Sequence[int | str | None]) -> str:
    return " x ".join("?" if size is None else str(size) for size in shape)
