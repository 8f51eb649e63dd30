"""Graphs: sets and single large ones in .npz, OGB's tables, Planetoid's pickles, molecules as SDF and SMILES."""

from __future__ import annotations

import functools
import json
import random
import re
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.arrays_of import nothing_ran, spoil_arrays, write_npz
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.networks_of import ogb, planetoid
from tests.fuzz.makers.tables_of import ODD, encoded, spoiled
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "engine", "engine.sdaa.engine", "utils.pipeline.cli", "utils.pipeline.valid"),
    *(
        "utils.tasks.graph_prediction.task",
        "utils.tasks.node_classification.task",
        "utils.pipeline.answers",
        "rdkit.Chem",
    ),
)

FOLDER = ROOT / "example" / "gnn"
DIGITS, SOLUBILITY = FOLDER / "digits_gcn", FOLDER / "solubility_gcn"
TARGETS = ("onnx", "onnx", "cpu", "sdaa")


def make(rng: random.Random, folder: Path, number: int) -> Case:
    makers = (_nodes, _set, _same, _smiles, _sdf, _planetoid, _ogb, _set, _no_file)
    return makers[number % len(makers)](rng, folder)


def _script(rng: random.Random, data: Path, folder: Path, *words: str) -> tuple[str, ...]:
    script = rng.choice(("valid", "valid", "multi_batch", "single_batch"))
    return str(folder / f"example_{script}.py"), "--data_path", str(data), "--target", rng.choice(TARGETS), *words


# ------------------------------------------------------------------------------------------------- nodes of one graph


@functools.cache
def _digits() -> dict[str, Any]:
    import numpy as np

    with np.load(DIGITS / "data" / "digits_graph.npz") as file:
        found = {name: file[name] for name in file.files}
    keep = 150
    edges = found["edges"][:, (found["edges"] < keep).all(axis=0)]
    short = {name: found[name][:keep] for name in ("x", "y", "train_mask", "test_mask")}
    return {**short, "edges": edges, "classes": found["classes"], "picture": found["picture"]}


def _nodes(rng: random.Random, folder: Path) -> Case:
    arrays = dict(_digits())
    done = spoil_arrays(arrays, rng) if rng.random() < 0.8 else "whole"
    name = odd_name(rng, ".npz") if rng.random() < 0.1 else "graph.npz"
    done += "; " + write_npz(folder / name, arrays, rng)
    words: list[str] = []
    if rng.random() < 0.3:
        words += [
            "--neighbours",
            "sampled",
            "--fanout",
            *rng.choice((("5", "5"), ("1",), ("0", "3"), ("-1", "2"), ("9999", "9999"))),
        ]
    if rng.random() < 0.2:
        words += ["--split", rng.choice(("train", "valid", "all", "odd"))]
    return Case(_script(rng, folder / name, DIGITS, *words), f"nodes: {done}", nothing_ran(folder))


def _same(rng: random.Random, folder: Path) -> Case:
    """Write an equivalent graph of the digits in another form."""
    import numpy as np

    with np.load(DIGITS / "data" / "digits_graph.npz") as file:
        arrays = {name: file[name] for name in file.files}
    arrays["x"] = arrays["x"].astype(rng.choice(("f4", "f8", "f2")))
    edges = arrays["edges"].astype(rng.choice(("i8", "u4", "u2", ">i4")))
    edges = edges[:, np.random.default_rng(rng.randrange(99)).permutation(edges.shape[1])]
    arrays[rng.choice(("edges", "edge_index"))] = np.concatenate([edges, edges[:, :50]], axis=1)  # twice is once
    if "edge_index" in arrays:
        del arrays["edges"]
    arrays["y"] = arrays["y"].astype(rng.choice(("i8", "u1", ">i2")))
    write_npz(folder / "graph.npz", arrays, rng, spoil=False)
    target = rng.choice(("onnx", "cpu"))
    words = (str(DIGITS / "example_valid.py"), "--data_path", str(folder / "graph.npz"), "--target", target)

    def judge(outcome: Outcome) -> str | None:
        found = re.search(r"^eval_metric (\S+)", outcome.out, re.MULTILINE)
        if outcome.code or found is None:
            return f"what says the same is refused: {outcome.err.strip()[-200:]}"
        return None if abs(float(found[1]) - 0.936948) < 0.003 else f"eval_metric {found[1]}, and it is 0.936948"

    return Case(words, "the digits' graph, otherwise written", nothing_ran(folder, judge))


# -------------------------------------------------------------------------------------------------------- graph sets


def _model(path: Path, width: int, rng: random.Random, **notes: Any) -> Path:
    """Write a dense model: the sum over nodes of the messages, times a weight."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["adjacency", "x"], ["heard"]),
        helper.make_node("MatMul", ["heard", "w"], ["said"]),
        helper.make_node("ReduceSum", ["said", "axis"], ["y"], keepdims=0),
        helper.make_node("ReduceSum", ["mask", "axis"], ["count"]),
        helper.make_node("Div", ["y", "count"], ["out"]),
    ]
    kind = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("x", kind, ["batch", "nodes", width]),
        helper.make_tensor_value_info("adjacency", kind, ["batch", "nodes", "nodes"]),
        helper.make_tensor_value_info("mask", kind, ["batch", "nodes"]),
    ]
    held = [
        numpy_helper.from_array(np.sin(np.arange(width)).astype("f4")[:, None], "w"),
        numpy_helper.from_array(np.array([1], "i8"), "axis"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("out", kind, ["batch", 1])], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(
        model, {"graph": json.dumps({"messages": rng.choice(("sum", "mean", "symmetric")), **notes})}
    )
    onnx.save(model, path)
    return path


def _set(rng: random.Random, folder: Path) -> Case:
    import numpy as np

    count = rng.randint(1, 8)
    sizes = [rng.randint(1, 9) for _ in range(count)]
    arcs = [rng.randint(0, 12) for _ in range(count)]
    chance = np.random.default_rng(rng.randrange(10**6))
    ends = [chance.integers(0, size, (2, arc)) for size, arc in zip(sizes, arcs, strict=True)]
    arrays: dict[str, Any] = {
        "nodes": chance.normal(size=(sum(sizes), 3)).astype("f4"),
        "node_counts": np.array(sizes),
        "edges": np.concatenate(ends, axis=1),
        "edge_counts": np.array(arcs),
        "targets": chance.normal(size=(count, 1)),
        "target_names": np.array([rng.choice(("a", "\x1b[31m", "x" * 3000))]),
        "names": np.array([rng.choice(("g", "\x1b]0;x\x07", "n" * 2000, "../up", "")) for _ in range(count)]),
        "features": np.array(rng.choice(("", "{}", "[" * 900, "null"))),
    }
    if rng.random() < 0.3:
        arrays |= {"points": chance.normal(size=(sum(sizes), 2)), "labels": np.array(["C\x1b"] * sum(sizes))}
        arrays["orders"] = chance.integers(-100, 100, sum(arcs))
    done = spoil_arrays(arrays, rng) if rng.random() < 0.7 else "whole"
    done += "; " + write_npz(folder / "set.npz", arrays, rng)
    notes = {"edge_values": True} if rng.random() < 0.2 else {}
    ckpt = _model(folder / "model.onnx", 3, rng, **notes)
    words = ["--ckpt", str(ckpt), "--no_edges", rng.choice(("answer", "refuse"))]
    if rng.random() < 0.2:
        words += ["--nodes", *rng.choice((("4",), ("16", "8"), ("1000000",), ("0",)))]
    if rng.random() < 0.1:
        words += ["--property", "SOL"]
    script = _script(rng, folder / "set.npz", SOLUBILITY, *words)
    script += (
        ("--save", "--save_folder", str(folder / "drawn")) if "valid" not in script[0] and rng.random() < 0.0 else ()
    )
    return Case(script, f"graph set: {done}", nothing_ran(folder))


# --------------------------------------------------------------------------------------------------------- molecules

SMILES = ("CCO", "c1ccccc1O", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "[Na+].[Cl-]", "C[C@H](N)C(=O)O", "CC(=O)Oc1ccccc1C(=O)O")
STRANGE = (
    *(
        "C" * 3000,
        "(" * 3000,
        "C(" * 500 + ")" * 500,
        "C1" * 200,
        "[" * 300,
        "c1ccccc",
        "C(C)(C)(C)(C)C",
        "[999C]",
        "*",
    ),
    *(
        "C%99C",
        "[Xx]",
        "C.C.C." * 300 + "C",
        "[C+99]",
        "[CH99]",
        "C=#C",
        "\x1b[31mC",
        "C\0C",
        "CC |$odd$|",
        "[2H]" * 300,
    ),
    *("[#0]", "[#119]", "C1CC1" * 300, "[C:99999999999]", "C~C", "[*:1]C", "N" * 65, "B(Cl)(Cl)(Cl)(Cl)Cl", "", " "),
)


def _atoms() -> dict[str, Any]:
    from utils.datasets.graphs.molecules import AtomFeatures

    return AtomFeatures().stored()


def _of_molecules(rng: random.Random, folder: Path) -> Path:
    atoms = _atoms()
    width = sum(len(atoms[key]) for key in atoms) + 3
    return _model(folder / "model.onnx", width, rng, atoms=atoms)


def _smiles(rng: random.Random, folder: Path) -> Case:
    ending = rng.choice((".csv", ".csv", ".smi", ".tsv"))
    chosen = [rng.choice(STRANGE) if rng.random() < 0.5 else rng.choice(SMILES) for _ in range(rng.randint(1, 8))]
    if rng.random() < 0.15:
        ckpt = _of_molecules(rng, folder)
        safe = [one for one in chosen if one and "\0" not in one and not one.startswith("-")] or ["C"]
        words = (
            str(SOLUBILITY / "example_single_batch.py"),
            "--ckpt",
            str(ckpt),
            "--smiles",
            *safe,
            "--target",
            "onnx",
        )
        return Case(words, f"SMILES {safe}", nothing_ran(folder))
    rows = [["smiles", "name", "SOL"], *([one, f"m{n}", str(n / 3)] for n, one in enumerate(chosen))]
    between = {".csv": ",", ".tsv": "\t", ".smi": " "}[ending]
    done = "whole"
    if rng.random() < 0.4:
        rows, done = spoiled(rows, rng)
    text = "\n".join(between.join(row) for row in rows)
    content = encoded(text, rng) if rng.random() < 0.2 else text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        content, how = mutated(content, rng)
        done += f", {how}"
    if rng.random() < 0.05:
        content = rng.choice((b"", b"\n", b"smiles", b"smiles\n", b"\0" * 99, b"\xff" * 99))
    name = odd_name(rng, ending) if rng.random() < 0.1 else f"molecules{ending}"
    (folder / name).write_bytes(content)
    words = ["--ckpt", str(_of_molecules(rng, folder))]
    if rng.random() < 0.8:
        words += ["--property", rng.choice(("SOL", "SOL", "SOL", "none", "name"))]
    return Case(
        _script(rng, folder / name, SOLUBILITY, *words), f"{ending} of {chosen}: {done}"[:1000], nothing_ran(folder)
    )


def _block(smiles: str) -> str:
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    found = Chem.MolFromSmiles(smiles)
    rdDepictor.Compute2DCoords(found)
    return str(Chem.MolToMolBlock(found))


V3000 = """m
  odd

  0  0  0     0  0            999 V3000
M  V30 BEGIN CTAB
M  V30 COUNTS {count} 1 0 0 0
M  V30 BEGIN ATOM
M  V30 1 C 0 0 0 0
M  V30 2 O nan 1e999 0 0
M  V30 END ATOM
M  V30 BEGIN BOND
M  V30 1 1 1 {end}
M  V30 END BOND
M  V30 END CTAB
M  END
"""


def _sdf(rng: random.Random, folder: Path) -> Case:
    records = []
    for number in range(rng.randint(1, 5)):
        block = _block(rng.choice(SMILES))
        if rng.random() < 0.2:
            block = V3000.format(count=rng.choice((2, 0, 999_999_999, -1, "x")), end=rng.choice((2, 1, 3, -1, 10**12)))
        lines = block.split("\n")
        for _ in range(rng.choice((0, 0, 1, 3))):
            place = rng.randrange(len(lines))
            how = rng.randrange(5)
            if how == 0:
                lines[place] = rng.choice(("", "M  CHG  9", "M  ISO999", "M  RGP  1   1   1", "x" * 3000, *ODD))
            elif how == 1:
                lines[place:place] = [lines[place]] * rng.choice((1, 40))
            elif how == 2:
                lines[place] = re.sub(r"\d", lambda _: rng.choice("0123456789"), lines[place])
            elif how == 3:
                lines[place] = re.sub(
                    r"-?\d+\.\d+", lambda one: rng.choice(("nan", "inf", "1e999")).rjust(len(one[0])), lines[place]
                )
            else:
                del lines[place]
        value = rng.choice((str(number / 3), "1.5", *ODD[:20]))
        records.append("\n".join(lines) + f"> <{rng.choice(('SOL', 'SOL', 'SOL', '', 'x' * 500))}>\n{value}\n\n$$$$\n")
    content = "".join(records).encode("utf-8", "surrogatepass")
    done = "whole"
    if rng.random() < 0.4:
        content, done = mutated(content, rng)
    (folder / "m.sdf").write_bytes(content)
    words = ["--ckpt", str(_of_molecules(rng, folder)), "--property", "SOL"]
    return Case(
        _script(rng, folder / "m.sdf", SOLUBILITY, *words), f"SDF of {len(records)}: {done}", nothing_ran(folder)
    )


def _planetoid(rng: random.Random, folder: Path) -> Case:
    given, done = planetoid(rng, folder)
    return Case(_script(rng, given, DIGITS), f"Planetoid: {done}", nothing_ran(folder))


def _ogb(rng: random.Random, folder: Path) -> Case:
    whole, done = ogb(rng, folder)
    words = _script(rng, folder / "net", DIGITS)
    if not whole:
        ckpt = _model(folder / "model.onnx", 3, rng)
        words = _script(rng, folder / "net", SOLUBILITY, "--ckpt", str(ckpt))
        if rng.random() < 0.5:
            words += ("--split", rng.choice(("test", "all", "random/train", "odd/test", "../x/test")))
    return Case(words, f"OGB: {done}", nothing_ran(folder))


def _no_file(rng: random.Random, folder: Path) -> Case:
    name = rng.choice(("a.npz", "m.sdf", "m.csv", "m.smi", "ind.a.graph"))
    if rng.random() < 0.3:
        (folder / name).write_bytes(
            rng.choice((b"", b"\n", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x93NUMPY", b"$$$$\n"))
        )
        done = f"{name}: nothing to speak of"
    else:
        done = not_a_file_reason(rng, folder / name)
    script = rng.choice((DIGITS, SOLUBILITY))
    words = ("--ckpt", str(_of_molecules(rng, folder))) if script is SOLUBILITY else ()
    given = folder if rng.random() < 0.2 else folder / name
    return Case(_script(rng, given, script, *words), done, nothing_ran(folder))
