"""The tools of `teco` on broken or odd models, and on changed results."""

from __future__ import annotations

import csv
import functools
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers import zoos_of
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.values_of import ODD, changed
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    "numpy",
    "onnx",
    "onnxruntime",
    "engine",
    "engine.sdaa.engine",
    "toolkit.cli",
    "model_config.reports",
    "utils.pipeline.cli",
    "yaml",
)

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
tiny (float[N, 4] x) => (float[N, 3] y)
<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[3] b = {0.1, 0.2, 0.3}>
{ h = MatMul(x, w)  g = Add(h, b)  r = Relu(g)  y = Softmax(r) }"""

COMMANDS = ("compare", "overflow", "ops", "profile", "table", "optest", "dump", "fix")


def make(rng: random.Random, folder: Path, number: int) -> Case:
    if rng.random() < 0.2:
        words, what = zoos_of.zoo(rng, folder)
        return Case(tuple(words), f"{what} | teco {' '.join(words[2:])}"[:600], partial(_judged, folder))
    how = rng.choice((_models, _models, _dumps, _profiles, _tables, _inputs, _outputs, _names))
    words, what = how(rng, folder, _material(folder.parent))
    return Case(("-m", "toolkit.cli", *words), f"{what} | teco {' '.join(words)}"[:600], partial(_judged, folder))


def _judged(folder: Path, outcome: Outcome) -> str | None:
    """Return a finding of code injected into a page or a formula into a table."""
    for path in (*folder.glob("*.html"), *folder.glob("*.csv")):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".html" and re.search(r"<script>alert|<b>&(?!amp)|href=.javascript:", text):
            return f"{path.name} holds markup of the model"
        if path.suffix == ".csv" and any(
            cell[:1] in "=+@\t\r" and cell for row in csv.reader(text.splitlines()) for cell in row
        ):
            return f"{path.name} has a cell that a spreadsheet computes"
    return None


@functools.lru_cache(maxsize=1)
def _material(work: Path) -> Path:
    """Return a folder with a model and the tools' results, made once."""
    made = work / "material"
    made.mkdir()
    onnx.save(onnx.parser.parse_model(MODEL), str(made / "tiny.onnx"))
    np.savez(made / "data.npz", inputs=np.ones((8, 4), np.float32), labels=np.zeros(8, np.int64))
    np.savez(made / "calls.npz", x=np.ones((2, 4), np.float32))
    shutil.copy(ROOT / "toolkit" / "ops" / "sdaa.yaml", made / "table.yaml")
    for words in (
        ("dump", "full", "tiny.onnx", "--out", "dump"),
        ("dump", "full", "tiny.onnx", "--out", "dump.h5"),
        ("profile", "tiny.onnx", "--json", "profile.json"),
        ("compare", "tiny.onnx", "--json", "compare.json"),
    ):
        command = [sys.executable, "-m", "toolkit.cli", *words]
        subprocess.run(command, cwd=made, env=_environment(), check=True, capture_output=True, timeout=300)
    return made


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _models(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """A model changed in its bytes, or odd as a graph."""
    model = onnx.load(str(material / "tiny.onnx"))
    what = rng.choice(list(GRAPHS))
    GRAPHS[what](model, rng)
    content = model.SerializeToString()
    if rng.random() < 0.5:
        content, how = mutated(content, rng)
        what += f", {how}"
    (folder / "model.onnx").write_bytes(content)
    return [*_command(rng, material), "model.onnx" if rng.random() < 0.9 else "./model.onnx"], what


def _command(rng: random.Random, material: Path) -> list[str]:
    name = rng.choice(COMMANDS)
    more = {
        "optest": ["--out", "made"],
        "dump": ["full", "--out", rng.choice(("made", "made.h5"))],
        "fix": ["--data", str(material / "data.npz"), "--out", "made"],
        "profile": rng.choice((["--suggest"], ["--apply", "pass.py"], ["--trace", "trace.json"], [])),
        "compare": rng.choice((["--b", "cpu"], ["--b_dtype", "float32"], [])),
    }.get(name, [])
    reports = [f"--{kind}=out.{kind}" for kind in ("json", "csv", "html") if rng.random() < 0.3]
    first, rest = (more[:1], more[1:]) if name == "dump" else ([], more)
    if name == "optest":
        return [name, "--out", "made", *reports, "--", *rng.choice((["1"], ["h"], ["-1"], ["99999999999"], [""]))][::1]
    return [name, *first, *rest, *reports]


def _nothing(model: onnx.ModelProto, rng: random.Random) -> None:
    pass


def _names_of_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    for node in model.graph.node:
        node.name = rng.choice(
            ("", "same", "a/b/../c", "line\nbreak", "\x1b[31m", "<script>alert(1)</script>", "=1+1", "@x", "n" * 5000)
        )


def _names_of_tensors(model: onnx.ModelProto, rng: random.Random) -> None:
    new = rng.choice(("../../x", "a/b", "\x1b]0;t\x07", "<b>&", "=cmd|'x'!A1", "+1", "t" * 5000, " ", "\u202e"))
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == "h" else name for name in names]


def _no_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    del model.graph.node[:]


def _unknown_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    node.op_type, node.domain = rng.choice((("Nope", ""), ("Add", "own"), ("", ""), ("\u202eRelu", ""), ("Loop", "")))


def _no_output(model: onnx.ModelProto, rng: random.Random) -> None:
    del rng.choice(model.graph.node).output[:]


def _weights_with_nan(model: onnx.ModelProto, rng: random.Random) -> None:
    value = rng.choice((float("nan"), float("inf"), 1e38, 1e-45, 65504.0, 70000.0))
    model.graph.initializer[0].CopyFrom(helper.make_tensor("w", onnx.TensorProto.FLOAT, [4, 3], [value] * 12))


def _sizes(model: onnx.ModelProto, rng: random.Random) -> None:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    rng.choice(dims).dim_value = rng.choice((0, -1, 1, 7, 2**31, 2**40, 2**62))


def _no_shape(model: onnx.ModelProto, rng: random.Random) -> None:
    info = rng.choice((model.graph.input[0], model.graph.output[0]))
    info.type.tensor_type.ClearField("shape")


def _other_type(model: onnx.ModelProto, rng: random.Random) -> None:
    info = rng.choice((model.graph.input[0], model.graph.output[0]))
    info.type.tensor_type.elem_type = rng.choice((0, 6, 7, 8, 9, 10, 14, 16, 17, 22, 99))


def _document(model: onnx.ModelProto, rng: random.Random) -> None:
    text = rng.choice(("<script>alert(1)</script>", "\x1b[31m", "x" * 100_000, "{", "null"))
    for key in ("class_labels", "preprocess", "provenance", "names", text[:50]):
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    model.producer_name = model.doc_string = model.graph.name = text


GRAPHS: dict[str, Callable[[onnx.ModelProto, random.Random], None]] = {
    "as it is": _nothing,
    "odd names of nodes": _names_of_nodes,
    "odd names of tensors": _names_of_tensors,
    "no nodes": _no_nodes,
    "an unknown operator": _unknown_operator,
    "a node without output": _no_output,
    "odd weights": _weights_with_nan,
    "odd sizes": _sizes,
    "no shape": _no_shape,
    "another type": _other_type,
    "odd documents": _document,
}


def _changed_json(path: Path, rng: random.Random) -> str:
    """Change the bytes or the content of a JSON file."""
    if rng.random() < 0.4:
        content, what = mutated(path.read_bytes(), rng)
        path.write_bytes(content)
        return what
    document, what = changed(json.loads(path.read_text(encoding="utf-8")), rng)
    path.write_text(json.dumps(document), encoding="utf-8")
    return what


def _dumps(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """A dump whose index or arrays were changed."""
    if rng.random() < 0.3:
        content, what = mutated((material / "dump.h5").read_bytes(), rng)
        (folder / "dump.h5").write_bytes(content)
        name = "dump.h5"
    else:
        name = "dump"
        shutil.copytree(material / "dump", folder / name)
        path = rng.choice(sorted((folder / name).iterdir()))
        if rng.random() < 0.5:
            path = folder / name / "manifest.json"
        if rng.random() < 0.1:
            path.unlink()
            what = not_a_file_reason(rng, path)
        elif path.suffix == ".json":
            what = _changed_json(path, rng)
        else:
            content, what = mutated(path.read_bytes(), rng)
            path.write_bytes(content)
        what = f"{path.name}: {what}"
    good = str(material / "dump")
    model = str(material / "tiny.onnx")
    return rng.choice(
        (
            ["dump", "compare", good, name],
            ["dump", "compare", name, good, "--html", "out.html"],
            ["dump", "recover", name, "--out", rng.choice(("new", "new.h5"))],
            ["compare", model, "--a", name],
            ["compare", model, "--data", name],
        )
    ), what


def _profiles(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """An earlier profile that was changed."""
    source = rng.choice(("profile.json", "profile.json", "compare.json"))
    shutil.copy(material / source, folder / "before.json")
    what = _changed_json(folder / "before.json", rng)
    return ["profile", str(material / "tiny.onnx"), "--against", "before.json"], f"{source}: {what}"


def _tables(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """A support table that was changed."""
    import yaml

    text = (material / "table.yaml").read_text(encoding="utf-8")
    if rng.random() < 0.4:
        content, what = mutated(text.encode(), rng)
        (folder / "table.yaml").write_bytes(content)
    else:
        document, what = changed(yaml.safe_load(text), rng)
        (folder / "table.yaml").write_text(yaml.safe_dump(document), encoding="utf-8", errors="surrogatepass")
    return ["ops", str(material / "tiny.onnx"), "--table", "table.yaml"], what


def _inputs(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """Data whose bytes, names, shapes or types were changed."""
    source = rng.choice(("data.npz", "calls.npz"))
    path = folder / source
    kind = rng.choice(("bytes", "arrays", "no file"))
    what = kind
    if kind == "bytes":
        content, what = mutated((material / source).read_bytes(), rng)
        path.write_bytes(content)
    elif kind == "arrays":
        arrays = {
            rng.choice(("x", "inputs", "labels", "z")): np.full(
                rng.choice(((), (0,), (2, 4), (8, 4), (8, 5), (8,), (1, 1, 1, 1), (0, 4))),
                rng.choice((0, 1, 7)),
                rng.choice(("float32", "float64", "float16", "int64", "uint8", "bool", "complex64", "U3", "M8[s]")),
            )
            for _ in range(rng.randint(0, 3))
        }
        np.savez(path, **arrays)
        what = ", ".join(f"{name}: {array.dtype}{array.shape}" for name, array in arrays.items())
    else:
        what = not_a_file_reason(rng, path)
    model = str(material / "tiny.onnx")
    return rng.choice(
        (
            ["fix", model, "--data", source, "--out", "made"],
            ["overflow", model, "--data", source],
            ["compare", model, "--data", source],
            ["profile", model, "--data", source],
            ["dump", "full", model, "--data", source, "--out", "made"],
            ["optest", model, "1", "--data", source, "--out", "made"],
            ["fix", model, "--data", str(material / "data.npz"), "--golden", source, "--out", "made"],
        )
    ), what


def _outputs(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """Outputs in unwritable places."""
    flag = rng.choice(("--json", "--csv", "--html"))
    place = rng.choice(
        ("folder", "pipe", "missing/out", "/dev/full", "/proc/nothing", "x" * 300, str(material / "tiny.onnx"))
    )
    if place == "folder":
        (folder / place).mkdir()
    elif place == "pipe":
        import os

        os.mkfifo(folder / place)
    if place.endswith("tiny.onnx"):
        shutil.copy(material / "tiny.onnx", folder / "tiny.onnx")
        place = "tiny.onnx"
    name = rng.choice(("compare", "overflow", "ops", "profile", "table"))
    model = place if place == "tiny.onnx" else str(material / "tiny.onnx")
    return [name, model, flag, place], "an output that cannot be"


def _names(rng: random.Random, folder: Path, material: Path) -> tuple[list[str], str]:
    """A model with an odd name, an invalid one, and odd values of flags."""
    if rng.random() < 0.5:
        name = odd_name(rng, ".onnx")
        shutil.copy(material / "tiny.onnx", folder / name)
        return [*_command(rng, material), f"./{name}"], "an odd name"
    if rng.random() < 0.4:
        what = not_a_file_reason(rng, folder / "none.onnx")
        return [*_command(rng, material), "none.onnx"], what
    flag = rng.choice(
        ("--shape", "--dim", "--batch_size", "--seed", "--threshold", "--samples", "--memory", "--top", "--runs")
    )
    value = (
        str(rng.choice(ODD)).replace("\0", "")
        if rng.random() < 0.5
        else rng.choice(("x=1,4", "N=3", "N=0", "x=", "=3"))
    )
    value = value.encode("utf-8", "ignore").decode()
    return [*_command(rng, material), str(material / "tiny.onnx"), f"{flag}={value}"], "an odd value"
