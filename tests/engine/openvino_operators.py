"""Which operators OpenVINO computes as ONNX Runtime does, for every type of numbers, on ONNX's own node tests.

    python -m tests.engine.openvino_operators --write

Every node test is run on ONNX Runtime and on OpenVINO: with its own inputs, with the types of numbers that its operator
takes besides, with whole numbers as large as the type and the result allow, and with NaN. What was found is written to
``engine/backends/ov_operators.json``, which the engine reads; without ``--write`` it is only compared with that file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine import TecoInferError

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "engine/backends/ov_operators.json"
WHOLE = ("int64", "uint64", "int32", "uint32", "int16", "uint16", "int8", "uint8")
FLOATS = ("float", "double", "float16")
BITS = (3, 7, 12, 20, 23, 24, 26, 30, 31)
"""Draws of whole numbers: below two to this power."""
LEAST_BITS = 8
"""An operator that differs at numbers below two to this power is of no use."""
NEWEST_IR, NEWEST_OPSET = 11, 24
"""What ONNX Runtime reads, and what OpenVINO has the operators of; the cases need nothing that came after."""
RETYPED = 6
"""Node tests of an operator that are run in other types than their own."""
SECONDS = 300
"""After so long in one case a worker is ended, and the case counts as one that cannot be run."""
ENORMOUS = frozenset(("Range", "ConstantOfShape", "MelWeightMatrix", "BlackmanWindow", "HammingWindow", "HannWindow"))
"""Operators whose outputs grow with the values of their inputs."""
LIMITED = {"BitShift": 8, "Pow": 4}
"""Operators whose second input stays below this: the result would not fit otherwise."""


@dataclass
class Found:
    """What was found of one operator with one type.

    Attributes:
        equal, narrowed, other: runs; narrowed ones are near in float32. bits: the smallest power of two that whole
            numbers had reached which differed. nan: NaN was lost or made.
        refused: OpenVINO does not take it.
    """

    equal: int = 0
    narrowed: int = 0
    other: int = 0
    refused: int = 0
    bits: int | None = None
    nan: bool = False


def kind_of(number: int) -> str:
    """Return the name that ONNX's schemas give a type: ``int64``, ``float``."""
    return TensorProto.DataType.Name(number).lower()


def number_of(kind: str) -> int:
    return int(TensorProto.DataType.Value(kind.upper()))


def retyped(model: onnx.ModelProto, kind: str) -> tuple[onnx.ModelProto, list[int]] | None:
    """Return a model of one node whose data is of another type, and which inputs are data, or ``None``."""
    (node,) = model.graph.node
    if any(attribute.HasField("g") for attribute in node.attribute):
        return None
    version = next((one.version for one in model.opset_import if one.domain == node.domain), 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None
    infos = {info.name: info for info in (*model.graph.input, *model.graph.output)}
    if not schema.inputs or not node.input:
        return None
    variable = schema.inputs[1 if node.op_type == "Where" else 0].type_str
    allowed = next((one.allowed_type_strs for one in schema.type_constraints if one.type_param_str == variable), [])
    if f"tensor({kind})" not in allowed:
        return None
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    infos = {info.name: info for info in (*changed.graph.input, *changed.graph.output)}
    data = []
    for names, parameters in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for place, name in enumerate(names):
            parameter = parameters[min(place, len(parameters) - 1)]
            if name in infos and parameter.type_str == variable:
                if infos[name].type.WhichOneof("value") != "tensor_type":
                    return None
                infos[name].type.tensor_type.elem_type = number_of(kind)
                if names is node.input:
                    data.append([info.name for info in changed.graph.input].index(name))
    return changed, sorted(set(data))


def drawn(rng: np.random.Generator, kind: str, bits: int, array: Any, op: str, place: int) -> Any:
    """Return whole numbers of a type below a power of two, without 0 (nothing is divided by it)."""
    dtype = helper.tensor_dtype_to_np_dtype(number_of(kind))
    top = min(2**bits - 1, int(np.iinfo(dtype).max))
    if place and op in LIMITED:
        top = min(top, LIMITED[op] - 1)
    values = rng.integers(max(1, top // 2), top, np.shape(array), endpoint=True, dtype=np.uint64)
    small = rng.integers(1, min(top, 7), np.shape(array), endpoint=True, dtype=np.uint64)
    values = np.where(rng.random(np.shape(array)) < 0.6, values, small).astype(dtype)
    if kind.startswith("int") and not (place and op in LIMITED):
        values = np.where(rng.random(np.shape(array)) < 0.5, values, -values).astype(dtype)
    return values


def with_parameters(model: onnx.ModelProto, inputs: Sequence[Any], data: Sequence[int]) -> onnx.ModelProto:
    """Return a model whose inputs that are not data (axes, shapes) are constants, as exporters write them."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for place, info in enumerate(model.graph.input):
        if place not in data and inputs[place].dtype.kind in "iu":
            changed.graph.initializer.append(numpy_helper.from_array(inputs[place], info.name))
    fixed = {tensor.name for tensor in changed.graph.initializer}
    kept = [info for info in changed.graph.input if info.name not in fixed]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    return changed


class Runner:
    """Runs models on both libraries, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "model.onnx"
        self.wide = folder / "wide.onnx"

    def exact(self, model: onnx.ModelProto, file: Path) -> Any:
        """Return a function that computes on bare ONNX Runtime."""
        import onnxruntime

        file.write_bytes(model.SerializeToString())
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))

    def other(self, file: Path) -> Any:
        """Return an engine that computes on bare OpenVINO."""
        from engine import EngineSpec
        from engine.backends.ov import OpenVinoEngine

        return OpenVinoEngine(EngineSpec(file, dtype="float32"))


def near(found: Sequence[Any], want: Sequence[Any], digits: float) -> bool:
    """Say whether outputs agree: whole numbers exactly, floats within a part of the largest; NaN in the same places."""
    for one, other in zip(found, want, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if other.dtype.kind != "f":
            if not np.array_equal(one, other):
                return False
            continue
        if not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return False
        a, b = (np.where(np.isfinite(other), x, 0).astype(np.float64) for x in (one, other))
        if a.size and np.abs(a - b).max() > digits * max(np.abs(b).max(), 1e-30):
            return False
    return True


def same_nan(found: Sequence[Any], want: Sequence[Any]) -> bool:
    """Say whether NaN is in the same places, and what no NaN came near is the same."""
    for one, other in zip(found, want, strict=True):
        if one.shape != other.shape:
            return False
        if other.dtype.kind == "f" and not np.array_equal(np.isnan(one), np.isnan(other)):
            return False
        if other.dtype.kind != "f" and not np.array_equal(one, other):
            return False
    return True


def runs_of(case: Any, kind: str, runner: Runner, rng: np.random.Generator) -> dict[str, Any]:
    """Run one node test in one type; return what was found."""
    model = case["model"]
    own = case["kind"] == kind
    made = retyped(model, kind)
    if made is None and not own:
        return {}
    changed, data = made if made is not None else (model, [])
    try:
        exact = runner.exact(changed, runner.file)
    except Exception:  # noqa: BLE001 - its exceptions share no base class
        return {}
    calls = list(calls_of(case, kind, data, own, runner, rng, exact))
    if not calls:
        return {}
    places = list(range(len(case["inputs"])))
    try:
        engine = runner.other(runner.file)
    except TecoInferError as error:
        held = with_parameters(changed, case["inputs"], data) if data else changed
        if len(held.graph.input) in (0, len(places)):
            return {"refused": 1, "why": str(error)[-200:]}
        runner.file.write_bytes(held.SerializeToString())
        names = [info.name for info in changed.graph.input]
        places = [names.index(info.name) for info in held.graph.input]
        try:
            engine = runner.other(runner.file)
        except TecoInferError as again:
            return {"refused": 1, "why": str(again)[-200:]}
    found = Found()
    with engine:
        for name, bits, arrays, want in calls:
            try:
                got = engine([arrays[place] for place in places])
            except TecoInferError:
                found.refused += 1
                continue
            judge_call(found, name, size_of(bits, arrays, want), got if isinstance(got, list) else [got], want, kind)
    return vars(found)


def size_of(bits: int | None, arrays: Sequence[Any], want: Sequence[Any]) -> int | None:
    """Return the power of two that the largest whole number of a draw has reached; ``None`` where nothing was drawn."""
    if bits is None:
        return None
    every = [np.abs(x.astype(np.float64)).max(initial=1) for x in (*arrays, *want) if x.dtype.kind in "iu"]
    return int(max(every)).bit_length() - 1


def judge_call(found: Found, name: str, bits: int | None, got: list[Any], want: list[Any], kind: str) -> None:
    """Take note of how one call's outputs compare."""
    if name == "nan":
        found.nan = found.nan or not same_nan(got, want)
    elif near(got, want, 1e-12 if kind == "double" else 2e-3 if kind == "float16" else 1e-4):
        found.equal += 1
    elif bits is not None:
        found.bits = min(found.bits or 99, bits)
    elif kind == "double" and near(got, want, 1e-4):
        found.narrowed += 1
    else:
        found.other += 1


def calls_of(
    case: Any, kind: str, data: list[int], own: bool, runner: Runner, rng: Any, exact: Any
) -> Iterator[tuple[str, int | None, list[Any], list[Any]]]:
    """Yield the calls that ONNX Runtime computes: name, bits of the numbers, inputs, outputs."""
    dtype = helper.tensor_dtype_to_np_dtype(number_of(kind))
    plain = case["inputs"]
    try:
        inputs = [one.astype(dtype) if i in data else one for i, one in enumerate(plain)] if not own else plain
        if own or kind in ("float", "float16"):
            yield "own", None, inputs, exact(inputs)
        if kind == "double":
            inputs = [x + x * 1e-10 if i in data and x.dtype == np.float64 else x for i, x in enumerate(inputs)]
            yield "own", None, inputs, exact(inputs)
        if kind == "float" and data:
            for place in data:
                if inputs[place].size:
                    spoiled = [x.copy() for x in inputs]
                    flat = spoiled[place].reshape(-1)
                    flat[:: max(1, flat.size // 3)] = np.nan
                    yield "nan", None, spoiled, exact(spoiled)
    except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions share no base class
        if own:
            return
    if kind not in WHOLE or not data or case["op"] in ENORMOUS:
        return
    try:
        wide = retyped(case["model"], "int64" if kind.startswith("int") else "uint64")
        truth = runner.exact(wide[0], runner.wide) if wide else None
    except Exception:  # noqa: BLE001
        truth = None
    for bits in BITS:
        if bits > np.iinfo(dtype).bits - kind.startswith("int"):
            break
        for _ in range(3):
            arrays = [
                drawn(rng, kind, bits, x, case["op"], data.index(i)) if i in data else x for i, x in enumerate(plain)
            ]
            try:
                want = exact(arrays)
                if truth is not None:
                    large = "int64" if kind.startswith("int") else "uint64"
                    through = truth([x.astype(large) if i in data else x for i, x in enumerate(arrays)])
                    if not all(fits(x, y) for x, y in zip(through, want, strict=True)):
                        continue
            except Exception:  # noqa: BLE001, S112 - a draw that ONNX Runtime cannot compute says nothing
                continue
            if all(np.abs(x.astype(np.float64)).max(initial=0) < 2**31 for x in want if x.dtype.kind in "iu"):
                yield "drawn", bits, arrays, want


def fits(through: Any, want: Any) -> bool:
    """Say whether a type holds what the widest one gives."""
    return bool(np.array_equal(through, want)) if want.dtype.kind in "iub" else True


def cases_of() -> list[dict[str, Any]]:
    """Return the node tests of a single operator whose inputs and outputs are tensors of numbers."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from onnx_node_cases import node_cases

    found = []
    for case in node_cases():
        if case.name.endswith("_expanded") or len(case.model.graph.node) != 1:
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        model.ir_version = min(model.ir_version, NEWEST_IR)
        for entry in model.opset_import:
            if not entry.domain:
                entry.version = min(entry.version, NEWEST_OPSET) if entry.version >= 7 else 13
        (node,) = model.graph.node
        inputs = [numpy_helper.to_array(x) if isinstance(x, TensorProto) else x for x in case.data_sets[0][0]]
        if not all(isinstance(x, (np.ndarray, np.generic)) for x in inputs):
            continue
        inputs = [np.asarray(x) for x in inputs]
        infos = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
        first = next((infos[name] for name in node.input if name in infos), 0)
        kind = kind_of(first) if first else ""
        op = f"{node.domain}.{node.op_type}".strip(".")
        found.append({"name": case.name, "op": op, "model": model, "inputs": inputs, "kind": kind})
    return found


def jobs_of(cases: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return which case is run in which type."""
    jobs, tried = [], defaultdict(int)
    for index, case in enumerate(cases):
        jobs.append((index, case["kind"]))
        for kind in (*WHOLE, *FLOATS, "bool"):
            if kind != case["kind"] and tried[case["op"], kind] < RETYPED and retyped(case["model"], kind):
                tried[case["op"], kind] += 1
                jobs.append((index, kind))
    return [job for job in jobs if job[1] in (*WHOLE, *FLOATS, "bool")]


def seed_of(case: dict[str, Any], kind: str) -> int:
    """Return a number of a node test and a type, by which its draws are the same in every order."""
    return crc32(f"{case['name']} {kind}".encode())


def say(what: dict[str, Any]) -> None:
    """Write a line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def work(start: int, only: Sequence[str]) -> None:
    """Run jobs from a number on, of some operators or (where none is named) of all, and write a line for each."""
    import signal

    warnings.simplefilter("ignore")
    cases = cases_of()
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        runner = Runner(Path(folder))
        for number, (index, kind) in enumerate(jobs_of(cases)):
            if number < start or (only and cases[index]["op"] not in only):
                continue
            say({"begin": number})
            signal.alarm(SECONDS)
            case = cases[index]
            found = runs_of(case, kind, runner, np.random.default_rng(seed_of(case, kind)))
            say({"op": case["op"], "type": kind, "case": case["name"], **found})
    say({"end": True})


def verdict(runs: Sequence[dict[str, Any]]) -> str:
    """Return what the runs of an operator in one type say."""
    total = {key: sum(one.get(key) or 0 for one in runs) for key in ("equal", "narrowed", "other", "refused")}
    bits = min((one["bits"] for one in runs if one.get("bits")), default=None)
    if bits is not None and bits > LEAST_BITS and not total["other"]:
        return f"equal below 2**{bits}"
    if total["other"] or bits is not None:
        return "other values"
    if total["narrowed"]:
        return "narrowed"
    return "equal" if total["equal"] else "refused" if total["refused"] else ""


def table_of(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the table of all runs."""
    grouped: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for one in lines:
        grouped[one["op"]][one["type"]].append(one)
    rows: dict[str, dict[str, str]] = {}
    for op in sorted(grouped):
        found = {kind: verdict(grouped[op][kind]) for kind in (*FLOATS, *WHOLE, "bool") if kind in grouped[op]}
        rows[op] = {kind: word for kind, word in found.items() if word}
    hiding = sorted(op for op in grouped if any(one.get("nan") for one in grouped[op]["float"]))
    other = {op: sorted(x["case"] for x in grouped[op]["float"] if x.get("other")) for op in sorted(grouped)}
    return {
        "made_by": "python -m tests.engine.openvino_operators --write",
        "versions": {name: version(name) for name in ("onnx", "onnxruntime", "openvino")},
        "operators": {op: row for op, row in rows.items() if row},
        "other_values_in_float": {op: names for op, names in other.items() if names},
        "loses_nan": hiding,
    }


def joined(table: dict[str, Any], found: dict[str, Any], only: Sequence[str]) -> dict[str, Any]:
    """Return a table in which some operators are as they were found."""
    merged = dict(found)
    for key in ("operators", "other_values_in_float"):
        kept = {op: row for op, row in table[key].items() if op not in only}
        merged[key] = dict(sorted((kept | found[key]).items()))
    merged["loses_nan"] = sorted({*found["loses_nan"], *(op for op in table["loses_nan"] if op not in only)})
    return merged


def text_of(table: dict[str, Any]) -> str:
    """Return a table as JSON with an operator to a line."""
    lines = [f"  {json.dumps(key)}: {json.dumps(table[key])}" for key in ("made_by", "versions")]
    for key in ("operators", "other_values_in_float"):
        rows = ",\n".join(f"    {json.dumps(op)}: {json.dumps(row)}" for op, row in table[key].items())
        lines.append(f"  {json.dumps(key)}: {{\n{rows}\n  }}")
    lines.append(f'  "loses_nan": {json.dumps(table["loses_nan"])}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def all_runs(only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run all jobs, or some operators', in a process that is started again behind a job which ended it."""
    lines: list[dict[str, Any]] = []
    start = 0
    while True:
        command = [
            sys.executable,
            "-m",
            "tests.engine.openvino_operators",
            "--work",
            str(start),
            *(("--only", *only) if only else ()),
        ]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                one = json.loads(line)
                start = one.get("begin", start)
                if "op" in one:
                    lines.append(one)
                elif "end" in one:
                    return lines
        sys.stderr.write(f"job {start} ended its process\n")
        start += 1


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--only", nargs="+", default=[], help="run these operators, keep the other rows")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work is not None:
        work(args.work, args.only)
        return 0
    found = table_of(all_runs(args.only))
    if args.only:
        found = joined(json.loads(TABLE.read_text(encoding="utf-8")), found, args.only)
    text = text_of(found)
    if args.write:
        TABLE.write_text(text, encoding="utf-8")
    elif TABLE.read_text(encoding="utf-8") != text:
        sys.stderr.write("the table differs; write it with --write\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
