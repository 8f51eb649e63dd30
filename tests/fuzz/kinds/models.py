"""ONNX files on every target: changed bytes, fields and structure; results are compared with ONNX Runtime alone."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.fuzz import graphs
from tests.fuzz.alone import excused, judge
from tests.fuzz.case import ROOT, Case
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.messages import TEXTS, changed, within
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    "numpy",
    "onnx",
    "onnx.inliner",
    "onnx.shape_inference",
    "onnx.numpy_helper",
    "onnxruntime",
    "engine",
    "engine.batching.independence",
    "engine.onnx.load",
    "engine.onnx.shapes",
    "engine.backends.cpu",
    "engine.sdaa.engine",
    "engine.sdaa.float16",
    "utils.pipeline.cli",
    "tests.fuzz.run_alone",
)

TARGETS = (
    ("onnx", None),
    ("cpu", None),
    ("sdaa", "float32"),
    ("sdaa", "float16"),
    ("onnx", "float16"),
    ("cpu", "int8"),
)
SHARES = (30, 20, 25, 15, 5, 5)
"""Weights of the targets."""

Attack = Callable[[random.Random, ModelProto, Path], str]


def make(rng: random.Random, folder: Path, number: int) -> Case:
    path = folder / (odd_name(rng, ".onnx") if rng.random() < 0.05 else "model.onnx")
    what = _written(rng, folder, path)
    target, dtype = rng.choices(TARGETS, SHARES)[0]
    command = rng.choices(("call", "tecoexec", "script"), (90, 5, 5))[0]
    if command == "tecoexec":
        words = ("-m", "tecoexec", f"--onnx={path}", f"--target={target}", "--iterations=1", "--warmUp=1")
        return Case(words, f"tecoexec on {target}: {what}", excused=partial(excused, path, folder))
    if command == "script":
        script = str(ROOT / "example" / "classification" / "digits" / "example_single_batch.py")
        return Case(
            (script, f"--ckpt={path}", "--target", target),
            f"script on {target}: {what}",
            excused=partial(excused, path, folder),
        )
    words = (str(ROOT / "tests" / "fuzz" / "run_model.py"), str(path), target, *(("--dtype", dtype) if dtype else ()))
    right = partial(judge, path, folder, target, dtype)
    return Case(words, f"{target} {dtype}: {what}", right, partial(excused, path, folder))


def _written(rng: random.Random, folder: Path, path: Path) -> str:
    """Write a model, and return how it is invalid."""
    if rng.random() < 0.02:
        return not_a_file_reason(rng, path)
    if rng.random() < 0.1:
        name = rng.choice(list(WHOLE))
        model = WHOLE[name](rng)
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return name
    name, model = _seed(rng)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.45:
            attack = rng.choice(list(ATTACKS))
            done.append(f"{attack}: {_attacked(attack, rng, model, folder)}")
        else:
            done.append(changed(model, rng))
    content = model.SerializeToString()
    if rng.random() < 0.15:
        content, how = mutated(content, rng)
        done.append(how)
    path.write_bytes(content)
    return f"{name}: {'; '.join(done)}"


def _attacked(attack: str, rng: random.Random, model: ModelProto, folder: Path) -> str:
    try:
        return ATTACKS[attack](rng, model, folder)
    except Exception as error:  # noqa: BLE001 - what was changed before may leave nothing that it could change
        return f"not possible: {type(error).__name__}"


def _seed(rng: random.Random) -> tuple[str, ModelProto]:
    if rng.random() < 0.15:
        path = rng.choice(graphs.digits(ROOT))
        return path.name, graphs.load(path)
    name = rng.choice(list(graphs.SEEDS))
    return name, graphs.SEEDS[name]()


# ----------------------------------------------------------------------------------------------------------- attacks


def _tensor(rng: random.Random, model: ModelProto) -> TensorProto:
    """Return one of a model's constants, or a new one."""
    found = [m for m in within(model) if isinstance(m, TensorProto)]
    return rng.choice(found) if found else model.graph.initializer.add(name="new", data_type=1)


def _not_utf8(rng: random.Random, model: ModelProto, folder: Path) -> str:
    """Put invalid UTF-8 into a string of the serialized model."""
    content = model.SerializeToString()
    names = [m.name for m in within(model) if getattr(m, "name", "")]
    name = rng.choice([name for name in names if isinstance(name, str)] or ["g"]).encode()
    changed_bytes = content.replace(name, b"\xff" * len(name))
    try:
        model.ParseFromString(changed_bytes)
    except Exception as error:  # noqa: BLE001 - then the parser itself refuses it
        return f"not possible: {type(error).__name__}"
    return f"{name!r} is not UTF-8"


def _dims(rng: random.Random, model: ModelProto, folder: Path) -> str:
    tensor = _tensor(rng, model)
    dims = rng.choice(
        ([2**62], [2**62, 4], [-1], [0], [1] * 65, [1] * 5000, [2**31, 2**31, 4], [-(2**63)], [2**32] * 2)
    )
    del tensor.dims[:]
    tensor.dims.extend(dims)
    return f"{tensor.name!r}: {len(dims)} of {dims[:3]}"


def _input_dims(rng: random.Random, model: ModelProto, folder: Path) -> str:
    info = rng.choice([*model.graph.input, *model.graph.output, *model.graph.value_info])
    shape = info.type.tensor_type.shape
    size = rng.choice((0, 1, 2, -1, 2**31, 2**62, 2**63 - 1, -(2**63), "N", "", "M", "batch", "a" * 5000, "\x1b[2J"))
    more = rng.choice((0, 0, 1, 70))
    shape.dim.extend(helper.make_tensor_type_proto(1, [1] * more).tensor_type.shape.dim)
    if shape.dim:
        dim = rng.choice(list(shape.dim))
        dim.Clear()
        setattr(dim, "dim_param" if isinstance(size, str) else "dim_value", size)
    return f"{info.name!r}: {str(size)[:20]}, {more} more"


def _dtype(rng: random.Random, model: ModelProto, folder: Path) -> str:
    kind = rng.choice((0, 9, 14, 15, 16, 17, 20, 21, 22, 23, 24, 30, 99, 1000, -1, 2**31 - 1, 8, 10, 11, 7))
    if rng.random() < 0.5:
        tensor = _tensor(rng, model)
        tensor.data_type = kind
        return f"{tensor.name!r} is of type {kind}"
    info = rng.choice([*model.graph.input, *model.graph.output])
    info.type.tensor_type.elem_type = kind
    return f"{info.name!r} is of type {kind}"


def _data(rng: random.Random, model: ModelProto, folder: Path) -> str:
    tensor = _tensor(rng, model)
    how = rng.choice(("none", "short", "long", "both", "zeros", "extreme"))
    if how == "both":
        tensor.float_data.extend([1.0] * 3)
        tensor.int64_data.extend([1] * 3)
    elif how == "extreme" and tensor.data_type in (6, 7):
        count = max(0, min(100, int(np.prod(list(tensor.dims) or [1]))))
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        value = rng.choice((np.iinfo(dtype).min, np.iinfo(dtype).max, -1, 0, 10**6))
        tensor.CopyFrom(
            numpy_helper.from_array(np.full(tuple(tensor.dims) if count else (0,), value, dtype), tensor.name)
        )
    else:
        raw = numpy_helper.to_array(tensor).tobytes() if tensor.data_type == 1 and min(tensor.dims or [1]) > 0 else b"1"
        tensor.ClearField("float_data")
        tensor.ClearField("int64_data")
        tensor.raw_data = {"none": b"", "short": raw[:-1], "long": raw + b"\0" * 4}.get(how, bytes(len(raw)))
    return f"{tensor.name!r}: {how}"


def _external(rng: random.Random, model: ModelProto, folder: Path) -> str:
    if (folder / "w.bin").exists():
        return "already"
    try:
        moved = graphs.with_external(model, folder)
    except (ValueError, TypeError, OSError, OverflowError, MemoryError, KeyError, AttributeError):
        return "not possible"
    how = rng.choice(list(PLACES))
    if not moved or how == "right":
        return f"{len(moved)} tensors"
    PLACES[how](rng, rng.choice(moved), folder)
    return how


def _say(key: str, *values: str) -> Callable[[random.Random, TensorProto, Path], object]:
    def change(rng: random.Random, tensor: TensorProto, folder: Path) -> None:
        for entry in tensor.external_data:
            if entry.key == key:
                entry.value = rng.choice(values)

    return change


def _instead(how: Callable[[random.Random, Path], object]) -> Callable[[random.Random, TensorProto, Path], object]:
    """Replace the file of weights."""

    def change(rng: random.Random, tensor: TensorProto, folder: Path) -> None:
        (folder / "w.bin").rename(folder / "other.bin")
        how(rng, folder)

    return change


PLACES: dict[str, Callable[[random.Random, TensorProto, Path], object]] = {
    "right": lambda rng, tensor, folder: None,
    "location": _say("location", *TEXTS, "/etc/passwd", "..", ".", "../w.bin", "./w.bin", "sub/w.bin", "a/" * 2500),
    "offset": _say("offset", "-1", "9999999", str(2**63), str(2**70), "x", "", "1.5", "1"),
    "length": _say("length", "-1", "0", "1", "9999999", str(2**63), str(2**70), "x", ""),
    "hard link": _instead(lambda rng, folder: os.link(folder / "other.bin", folder / "w.bin")),
    "link": _instead(lambda rng, folder: (folder / "w.bin").symlink_to("other.bin")),
    "no file": _instead(lambda rng, folder: not_a_file_reason(rng, folder / "w.bin")),
    "missing": lambda rng, tensor, folder: (folder / "w.bin").unlink(),
    "keys": lambda rng, tensor, folder: tensor.external_data.add(key=rng.choice(TEXTS), value=rng.choice(TEXTS)),
    "twice": lambda rng, tensor, folder: tensor.external_data.extend(list(tensor.external_data)),
    "no keys": lambda rng, tensor, folder: tensor.ClearField("external_data"),
}


def _nodes(rng: random.Random, model: ModelProto, folder: Path) -> str:
    node = rng.choice([m for m in within(model) if m.DESCRIPTOR.name == "NodeProto"] or [model.graph.node.add()])
    how = rng.choice(
        ("no inputs", "no outputs", "same outputs", "itself", "nothing", "twice", "other operator", "domain")
    )
    if how in ("no inputs", "nothing"):
        del node.input[:]
    if how in ("no outputs", "nothing"):
        del node.output[:]
    if how == "same outputs":
        node.output.extend(list(node.output))
    elif how == "itself" and node.output:
        node.input.append(node.output[0])
        if rng.random() < 0.5:
            node.input[0] = node.output[0]
    elif how == "twice":
        model.graph.node.append(node)
    elif how == "other operator":
        node.op_type = rng.choice(
            ("Add", "Conv", "If", "Loop", "Scan", "Concat", "Identity", "Gemm", "Shape", "Constant")
        )
    elif how == "domain":
        node.domain = rng.choice(TEXTS)
    return f"{node.op_type}: {how}"


def _attribute(rng: random.Random, model: ModelProto, folder: Path) -> str:
    nodes = [m for m in within(model) if m.DESCRIPTOR.name == "NodeProto"]
    with_some = [node for node in nodes if node.attribute] or nodes
    if not with_some:
        return "no nodes"
    node = rng.choice(with_some)
    value = rng.choice(
        (0, -1, 2**63 - 1, -(2**63), 0.5, float("nan"), "text", [1], [0, 0], [-1, 2**62], [3, 3, 3, 3, 3, 3], [1] * 100)
    )
    name = rng.choice([a.name for a in node.attribute] or ["axis"])
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if rng.random() < 0.8:
        node.attribute.append(helper.make_attribute(name, value))
    return f"{node.op_type}.{name} = {str(value)[:30]}"


def _versions(rng: random.Random, model: ModelProto, folder: Path) -> str:
    version = rng.choice((0, 1, 6, 7, 13, 21, 25, 30, -1, 2**31, 2**63 - 1))
    how = rng.choice(("opset", "domain", "twice", "none", "ir"))
    if how == "ir":
        model.ir_version = version
    elif how == "none":
        del model.opset_import[:]
    elif how == "domain":
        model.opset_import.add(domain=rng.choice(TEXTS), version=version)
    elif how == "twice":
        model.opset_import.add(version=version)
    elif model.opset_import:
        model.opset_import[0].version = version
    return f"{how} {version}"


def _metadata(rng: random.Random, model: ModelProto, folder: Path) -> str:
    key = rng.choice(("teco_preprocess", "labels", "mean", *TEXTS))
    for _ in range(rng.choice((1, 1, 2))):
        model.metadata_props.add(key=key, value=rng.choice((*TEXTS, "x" * 2**20, "[" * 2000)))
    model.doc_string = "d" * rng.choice((0, 2**20))
    return f"{key[:20]!r}"


def _functions(rng: random.Random, model: ModelProto, folder: Path) -> str:
    other = graphs.functions(rng.choice((1, 2, 5)), rng.choice((1, 2)), rng.random() < 0.3)
    if rng.random() < 0.3 and model.graph.node:
        other.functions[0].node[0].op_type = rng.choice(("Add", "f0", "nobody", ""))
    model.functions.extend(other.functions)
    model.opset_import.add(domain="own", version=rng.choice((1, 1, 2, 0)))
    for node in model.graph.node:
        if len(node.input) and len(node.output) and rng.random() < 0.5:
            node.domain, node.op_type = "own", rng.choice(("f0", "f1"))
            del node.attribute[:]
    return f"{len(other.functions)} more"


ATTACKS: dict[str, Attack] = {
    "text": _not_utf8,
    "dims": _dims,
    "input dims": _input_dims,
    "dtype": _dtype,
    "data": _data,
    "external": _external,
    "nodes": _nodes,
    "attribute": _attribute,
    "versions": _versions,
    "metadata": _metadata,
    "functions": _functions,
}


def _minimum(rng: random.Random) -> ModelProto:
    """Return a model that divides the smallest integer by -1, which crashes ONNX Runtime."""
    model = graphs.SEEDS["division"]()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([-1, -1, -1], np.int64), "d"))
    low = numpy_helper.from_array(np.full((1, 3), -(2**63), np.int64), "low")
    model.graph.initializer.append(low)
    model.graph.node[0].op_type = rng.choice(("Div", "Mod"))
    model.graph.node[0].input[0] = "e"
    model.graph.node.insert(0, helper.make_node("Add", ["z", "low"], ["e"]))
    model.graph.node.insert(0, helper.make_node("Sub", ["x", "x"], ["z"]))
    return model


def _long_chain(rng: random.Random) -> ModelProto:
    model = graphs.SEEDS["gemm"]()
    count = rng.choice((1000, 3000))
    model.graph.node[-1].output[0] = "v0"
    model.graph.node.extend(helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count))
    model.graph.node.add(op_type="Neg", input=[f"v{count}"], output=["y"])
    return model


WHOLE: dict[str, Callable[[random.Random], ModelProto | bytes]] = {
    "If nested": lambda rng: graphs.nested(rng.choice((5, 12, 20, 24, 25, 30))),
    "functions that double": lambda rng: graphs.functions(rng.choice((10, 16, 28)), 2),
    "functions that call one another": lambda rng: graphs.functions(rng.choice((1, 2, 30)), rng.choice((1, 2)), True),
    "functions 900 deep": lambda rng: graphs.functions(rng.choice((100, 900)), 1),
    "int64 minimum / -1": _minimum,
    "long chain": _long_chain,
    "empty": lambda rng: b"",
    "one byte": lambda rng: rng.randbytes(1),
    "text": lambda rng: b"not a model\n" * 20,
    "random bytes": lambda rng: rng.randbytes(rng.randint(2, 300)),
    "nested 200 deep": lambda rng: _deep(rng.choice((99, 200, 5000))),
    "no graph": lambda rng: ModelProto(ir_version=8),
}


def _deep(depth: int) -> bytes:
    """Return a model with deeply nested messages: graph, node, attribute, graph ..."""
    content = b""
    for _ in range(depth):
        for tag in (0x32, 0x2A, 0x0A):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
            content = bytes([tag]) + _length(len(content)) + content
    return bytes([0x3A]) + _length(len(content)) + content + b"\x42\x04\x0a\x00\x10\x11"


def _length(size: int) -> bytes:
    out = b""
    while size > 0x7F:
        out, size = out + bytes([size & 0x7F | 0x80]), size >> 7
    return out + bytes([size])
