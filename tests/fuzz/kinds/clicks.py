"""Recommendation: tables, Criteo's lines, ratings in each layout, histories, and the features that a model stores."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.tables_of import ODD, encoded, spoiled
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "engine", "engine.sdaa.engine", "utils.pipeline.cli", "utils.pipeline.valid"),
    *("utils.tasks.ctr_prediction.task", "utils.tasks.item_recommendation.task", "utils.pipeline.answers"),
)

FOLDER = ROOT / "example" / "recommendation"
DEEPFM, SASREC = FOLDER / "deepfm_synthetic", FOLDER / "sasrec"
TARGETS = ("onnx", "onnx", "cpu", "sdaa")


def make(rng: random.Random, folder: Path, number: int) -> Case:
    makers = (_table, _table, _same, _criteo, _ratings, _ratings, _histories, _features, _no_file)
    return makers[number % len(makers)](rng, folder)


# --------------------------------------------------------------------------------------------------------- tables


@functools.cache
def _rows() -> list[list[str]]:
    with (DEEPFM / "data" / "val.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _written(rows: Sequence[Sequence[str]], between: str = ",", end: str = "\n", how: int = csv.QUOTE_MINIMAL) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=between, lineterminator=end, quoting=how).writerows(rows)  # type: ignore[arg-type]
    return out.getvalue()


def _some(rng: random.Random, most: int) -> list[list[str]]:
    head, *rows = _rows()
    return [head, *rng.sample(rows, rng.randint(1, most))]


def _script(rng: random.Random, data: Path, folder: Path = DEEPFM, *words: str) -> tuple[str, ...]:
    script = rng.choice(("valid", "valid", "multi_batch", "single_batch"))
    return str(folder / f"example_{script}.py"), "--data_path", str(data), "--target", rng.choice(TARGETS), *words


def _table(rng: random.Random, folder: Path) -> Case:
    rows = _some(rng, 40)
    ending = rng.choice((".csv", ".csv", ".tsv", ".jsonl", ".json"))
    done = "whole"
    if rng.random() < 0.7:
        rows, done = spoiled(rows, rng)
    if ending in (".jsonl", ".json"):
        values: list[Any] = [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
        for _ in range(rng.randint(0, 4) if values else 0):
            odd = rng.choice((None, True, [], {}, [1, [2]], {"a": "b"}, 1e308, -5, 10**40, "x" * 3000, "\ud800"))
            place = rng.randrange(len(values))
            if isinstance(values[place], dict) and rng.random() < 0.8:
                values[place][rng.choice(rows[0] or ["label"])] = odd
            else:
                values[place] = odd
        text = json.dumps(values) if ending == ".json" else "\n".join(map(json.dumps, values))
    else:
        text = _written(rows, "," if ending == ".csv" else "\t", rng.choice(("\n", "\r\n", "\r")))
    content = encoded(text, rng) if rng.random() < 0.3 else text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        content, how = mutated(content, rng)
        done += f"; {how}"
    name = odd_name(rng, ending) if rng.random() < 0.15 else f"rows{ending}"
    (folder / name).write_bytes(content)
    return Case(_script(rng, folder / name), f"table {name!r}: {done}")


def _same(rng: random.Random, folder: Path) -> Case:
    """Write an equivalent table in another form; the metric is that of ONNX Runtime."""
    rows = _some(rng, 300)
    want = _auc(rows)
    order = rng.sample(range(len(rows[0])), len(rows[0]))
    rows = [[row[place] for place in order] for row in rows]
    ending = rng.choice((".csv", ".tsv", ".jsonl"))
    if ending == ".jsonl":
        text = "\n".join(json.dumps(dict(zip(rows[0], row, strict=True)), ensure_ascii=False) for row in rows[1:])
    else:
        how = rng.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL))
        text = _written(rows, "," if ending == ".csv" else "\t", rng.choice(("\n", "\r\n")), how)
        text += rng.choice(("", "\n\n", "\n"))
    kind = rng.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32"))
    (folder / f"rows{ending}").write_bytes(text.encode(kind))
    target = rng.choice(TARGETS)
    words = (str(DEEPFM / "example_valid.py"), "--data_path", str(folder / f"rows{ending}"), "--target", target)
    words += ("--batch_size", str(rng.choice((1, 7, 64, 1000))))
    return Case(
        words, f"the same {len(rows) - 1} rows as {kind} {ending}", _is(want, 0.02 if target == "sdaa" else 1e-6)
    )


def _is(want: float | None, within: float) -> Callable[[Outcome], str | None]:
    def judge(outcome: Outcome) -> str | None:
        found = re.search(r"^eval_metric (\S+)", outcome.out, re.MULTILINE)
        if want is None:
            return None  # one class alone has no such number
        if outcome.code or found is None:
            return f"what says the same is refused: {outcome.err.strip()[-200:]}"
        return None if abs(float(found[1]) - want) <= within else f"eval_metric {found[1]}, ONNX Runtime gives {want}"

    return judge


@functools.cache
def _session() -> Any:
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(DEEPFM / "deepfm_synthetic_dyn.onnx", chosen, ["CPUExecutionProvider"])


def _auc(rows: Sequence[Sequence[str]]) -> float | None:
    """Return the fraction of pairs that ONNX Runtime alone ranks correctly."""
    import numpy as np

    from utils.preprocess.features import Features

    features = Features.from_json(json.loads((DEEPFM / "features.json").read_text()))
    samples = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    scores = _session().run(None, dict(features.encoded(samples)))[0].ravel().astype(np.float64)
    truth = np.array([sample["label"] == "1" for sample in samples])
    if truth.all() or not truth.any():
        return None
    over = scores[truth][:, None] - scores[~truth][None]
    return float((over > 0).mean() + (over == 0).mean() / 2)


# --------------------------------------------------------------------------------------------------- small models


def _model(path: Path, fields: Sequence[dict[str, Any]], table: int, **notes: Any) -> Path:
    """Write a model that adds a number per table row and the floats, with a sigmoid."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ids = sum(field["kind"] in ("vocabulary", "hashed") for field in fields)
    width = sum(len(field.get("values", "x")) for field in fields if field["kind"] in ("number", "multi"))
    values = np.sin(np.arange(table)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["known"]),
        *([helper.make_node("ReduceSum", ["x", "axis"], ["more"])] if width else []),
        *([helper.make_node("Add", ["known", "more"], ["sum"])] if width else []),
        helper.make_node("Sigmoid", ["sum" if width else "known"], ["p"]),
    ]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", ids])]
    inputs += [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])] if width else []
    held = [numpy_helper.from_array(values, "table"), numpy_helper.from_array(np.array([1], np.int64), "axis")]
    out = [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["batch", 1])]
    graph = helper.make_graph(nodes, "g", inputs, out, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in notes.items()}
    helper.set_model_props(model, {"features": json.dumps({"fields": list(fields)}), **texts})
    onnx.save(model, path)
    return path


def _criteo(rng: random.Random, folder: Path) -> Case:
    from utils.datasets.synthetic.criteo_like import clicks

    size, table = rng.choice(((100, 2600), (100, 2600), (100, 100), (1000, 999), (2**31, 50)))
    fields = [{"name": f"I{n}", "input": "x", "kind": "number", "transform": "log1p"} for n in range(1, 14)]
    fields += [
        {"name": f"C{n}", "input": "ids", "kind": "hashed", "size": size, "offset": (n - 1) * 100, "hash": "hex"}
        for n in range(1, 27)
    ]
    ckpt = _model(folder / "model.onnx", fields, table)
    rows = [line.split("\t") for line in clicks(rng.randint(1, 60), rng.randrange(9))]
    done = f"hashed to {size} rows of {table}"
    if rng.random() < 0.6:
        rows, how = spoiled(rows, rng)
        done += f", {how}"
    content = "\n".join("\t".join(row) for row in rows).encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        content, how = mutated(content, rng)
        done += f", {how}"
    if rng.random() < 0.1:
        import gzip

        content, done = gzip.compress(bytes(1 << 20) + content), "gzipped"
    data = folder / rng.choice(("day_0", "train.txt", "rows.tsv"))
    data.write_bytes(content)
    return Case(_script(rng, data, FOLDER / "dlrm", "--ckpt", str(ckpt)), f"Criteo's lines, {done}")


LAYOUTS = ("inter", "data", "dat", "csv")


def _ratings_of(rng: random.Random, folder: Path) -> str:
    """Write ratings with their other files in a layout, and damage some."""
    layout = rng.choice(LAYOUTS)
    rated = [[str(u), str(i), str(1 + (u * i) % 5), str(100 * u + i)] for u in range(1, 12) for i in range(1, 15)]
    people = [[str(u), str(10 + 3 * u), "MF"[u % 2], "writer", f"0{u}123"] for u in range(1, 12)]
    films = [[str(i), f"Film {i} ({1950 + i})"] for i in range(1, 15)]
    between = {"inter": "\t", "data": "\t", "dat": "::", "csv": ","}[layout]
    genres = [[*film, "Drama|War"] for film in films]
    files: dict[str, tuple[str, list[list[str]]]] = {
        "inter": {
            "r.inter": ("\t", [["user_id:token", "item_id:token", "rating:float", "timestamp:float"], *rated]),
            "r.user": ("\t", [["user_id:token", "age:token", "gender:token", "o:token", "zip_code:token"], *people]),
            "r.item": ("\t", [["item_id:token", "movie_title:token_seq", "class:token_seq"], *genres]),
        },
        "data": {
            "u.data": ("\t", rated),
            "u.user": ("|", people),
            "u.item": ("|", [[*film, "", "", "", *"0010000100000000000"] for film in films]),
        },
        "dat": {
            "ratings.dat": ("::", rated),
            "users.dat": ("::", [[one[0], one[2], one[1], *one[3:]] for one in people]),
            "movies.dat": ("::", genres),
        },
        "csv": {
            "ratings.csv": (",", [["userId", "movieId", "rating", "timestamp"], *rated]),
            "movies.csv": (",", [["movieId", "title", "genres"], *genres]),
        },
    }[layout]
    done = [f"{layout} with {between!r}"]
    for name, (sep, rows) in files.items():
        if rng.random() < 0.2 and name != next(iter(files)):
            done.append(not_a_file_reason(rng, folder / name))
            continue
        if rng.random() < 0.5:
            rows, how = spoiled(rows, rng)
            done.append(f"{name}: {how}")
        content = "\n".join(sep.join(row) for row in rows).encode("utf-8", "surrogatepass")
        if rng.random() < 0.3:
            content, how = mutated(content, rng)
            done.append(f"{name}: {how}")
        (folder / name).write_bytes(content)
    return "; ".join(done)


def _ratings(rng: random.Random, folder: Path) -> Case:
    data = folder / "data"
    data.mkdir()
    done = _ratings_of(rng, data)
    fields = [
        {"name": "user_id", "input": "ids", "kind": "hashed", "size": 50},
        {"name": "item_id", "input": "ids", "kind": "vocabulary", "values": [str(i) for i in range(20)], "offset": 50},
    ]
    if rng.random() < 0.4:
        fields.append({"name": "age", "input": "x", "kind": "number", "mean": 30, "std": 10})
        fields.append({"name": "genres", "input": "x", "kind": "multi", "values": ["Drama", "War"]})
    split = rng.choice(("random", "leave_one_out", "time", "none of them"))
    ckpt = _model(folder / "model.onnx", fields, 71)
    given = data if rng.random() < 0.7 else next(iter(sorted(data.iterdir())))
    words = _script(rng, given, DEEPFM, "--ckpt", str(ckpt), *(("--split", split) if rng.random() < 0.3 else ()))
    if rng.random() < 0.2:
        words += ("--part", rng.choice(("train", "valid", "all")), "--positive", rng.choice(("nan", "-1", "1e9", "3")))
    return Case(words, f"ratings {done}")


def _histories(rng: random.Random, folder: Path) -> Case:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    data = folder / "data"
    data.mkdir()
    done = _ratings_of(rng, data)
    items = [str(i) for i in range(1, rng.choice((12, 15, 30)))]
    table = np.sin(np.arange((len(items) + 1) * len(items))).astype(np.float32).reshape(len(items) + 1, -1)
    nodes = [
        helper.make_node("Gather", ["history", "end"], ["last"], axis=1),
        helper.make_node("Gather", ["table", "last"], ["out"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("history", TensorProto.INT64, ["batch", 4])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", len(items)])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array(3, np.int64), "end")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    stored: Any = ["", *items]
    if rng.random() < 0.3:
        stored = rng.choice((items, [*items, *items], {"a": 1}, [[1]], 5, None, "x", [""], ["", *range(14)]))
        done += f"; vocabulary {str(stored)[:40]}"
    helper.set_model_props(model, {"vocabulary": json.dumps(stored)})
    onnx.save(model, folder / "model.onnx")
    words = _script(rng, data, SASREC, "--ckpt", str(folder / "model.onnx"))
    if not words[0].endswith("valid.py") and rng.random() < 0.5:
        chosen = [one for one in rng.choices(ODD, k=2) if "\0" not in one and "\ud800" not in one]
        words += (rng.choice(("--users", "--history")), *(one for one in chosen if not one.startswith("-")), "1")
    return Case(words, f"histories {done}")


# ------------------------------------------------------------------------------------------------ features, no files


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 31, 1 << 80, 1.5, 1e308, float("nan"), float("inf"), "", "x", "x" * 5000, [], {}),
    *([""], ["a", "a"], [1], [[]], ["x"] * 3, "hex", "crc32", "hashed", "number", "multi", "vocabulary", "log1p"),
)


def _features(rng: random.Random, folder: Path) -> Case:
    fields: list[Any] = [
        {"name": "user_id", "input": "ids", "kind": "hashed", "size": 50},
        {"name": "item_id", "input": "ids", "kind": "vocabulary", "values": ["t001", "t002"], "offset": 50},
        {"name": "age", "input": "x", "kind": "number", "mean": 30, "std": 10},
        {"name": "tags", "input": "x", "kind": "multi", "values": ["eco", "new"]},
    ]
    stored: Any = {"fields": [dict(one) for one in fields]}
    for _ in range(rng.randint(1, 3)):
        keys = ("name", "input", "kind", "values", "size", "offset", "separator", "transform", "mean", "std", "step")
        entry = rng.choice(stored["fields"])
        if isinstance(entry, dict):
            entry[rng.choice((*keys, "letters", "hash", "odd"))] = rng.choice(VALUES)
        if rng.random() < 0.1:
            stored["fields"].append(rng.choice(VALUES))
    text = json.dumps(stored)
    if rng.random() < 0.2:
        text = rng.choice(
            ("", "[" * 900, "{}", "null", '{"fields": {}}', text[:-9], "\x1b[31m", text.replace(":", ":" * 2))
        )
    ckpt = _model(folder / "model.onnx", fields, 53, features=text)
    (folder / "rows.csv").write_text(_written(_some(rng, 20)))
    return Case(_script(rng, folder / "rows.csv", DEEPFM, "--ckpt", str(ckpt)), f"features {text[:200]}")


def _no_file(rng: random.Random, folder: Path) -> Case:
    if rng.random() < 0.3:
        path = folder / odd_name(rng, ".csv")
        path.write_bytes(rng.choice((b"", b"\n", b"\0", b"\xff\xfe", b"label\n", b"\xef\xbb\xbf", b"a" * 100_000)))
        return Case(_script(rng, path), f"{path.name!r}: nothing to speak of")
    name = rng.choice(("rows.csv", "rows.tsv", "rows.jsonl", "rows.json", "u.data", "ratings.dat", "r.inter", "day_0"))
    done = not_a_file_reason(rng, folder / name)
    given = folder if rng.random() < 0.3 else folder / name
    os.utime(folder)
    return Case(_script(rng, given, rng.choice((DEEPFM, SASREC))), done)
