"""``teco fix`` and ``teco overflow`` on samples of a contributed task."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_task
import numpy as np
import onnx
import pytest
from foreign_task import FOREIGN
from onnx import helper, numpy_helper
from support import ROOT, RunPython, SaveOnnx

from engine import ConfigError, DataError
from engine.passes import PassOptions
from model_config.results import Verdict
from toolkit.cli import execute
from toolkit.fix.fixing import fix
from toolkit.fix.task_request import TaskRequest
from toolkit.overflow import find_overflow
from utils.metrics.base import RecordMetric
from utils.tasks import base

WORDS, TAGS, WIDTH = 20, 4, 8
DIMS = ["--dim", "words=4,8,12", "--dim", "traits=3"]
Array = np.ndarray


def tagger(path: Path, time_first: bool = False) -> Path:
    """Write a model from words and traits to tag scores; ``square`` overflows float16, ``down`` scales back."""
    rng = np.random.default_rng(3)
    names = ["words", "batch"] if time_first else ["batch", "words"]
    table, traits = (
        rng.uniform(260, 400, (WORDS, WIDTH)) * rng.choice([-1, 1], (WORDS, WIDTH)),
        rng.normal(size=(5, WIDTH)),
    )
    table[0] = traits[0] = 0  # padding
    weights = {"table": table, "own": traits, "head": rng.normal(size=(WIDTH, TAGS))}
    constants = [numpy_helper.from_array(np.float32(value), name) for name, value in weights.items()]
    constants += [
        numpy_helper.from_array(np.float32(1e-4), "small"),
        numpy_helper.from_array(np.float32(1e-6), "epsilon"),
    ]
    constants += [numpy_helper.from_array(np.array([1]), "second"), numpy_helper.from_array(np.array([0]), "first")]
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Gather", ["table", "ids"], "word", {}),
        ("Gather", ["own", "traits"], "trait", {}),
        ("ReduceSum", ["trait", "first" if time_first else "second"], "sum", {"keepdims": 1}),
        ("Add", ["word", "sum"], "stream", {}),
        ("Mul", ["stream", "stream"], "square", {}),
        ("Mul", ["square", "small"], "down", {}),
        ("ReduceMean", ["down"], "mean", {"axes": [-1]}),
        ("Add", ["mean", "epsilon"], "safe", {}),
        ("Sqrt", ["safe"], "root", {}),
        ("Div", ["stream", "root"], "unit", {}),
        ("MatMul", ["unit", "head"], "scores", {}),
    ]
    nodes = [helper.make_node(op, inputs, [out], out, **how) for op, inputs, out, how in steps]
    trait_dims = ["traits", "batch"] if time_first else ["batch", "traits"]
    face = [helper.make_tensor_value_info("ids", 7, names), helper.make_tensor_value_info("traits", 7, trait_dims)]
    end = helper.make_tensor_value_info("scores", 1, [*names, TAGS])
    graph = helper.make_graph(nodes, "tagger", face, [end], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def lines(path: Path, model: Path, count: int = 90) -> Path:
    """Write the float32 answers with one of eight tags changed, for an error rate above 0."""
    import onnxruntime as ort

    session, rng, found = ort.InferenceSession(str(model)), np.random.default_rng(4), []
    for i in range(count):
        ids, traits = rng.integers(1, WORDS, rng.integers(2, 13)), rng.integers(1, 5, rng.integers(1, 4))
        tags = session.run(None, {"ids": ids[None], "traits": traits[None]})[0].argmax(-1)[0]
        tags[rng.random(len(tags)) < 1 / 8] = 0
        found.append({"ids": ids, "traits": traits, "tags": tags, "speaker": f"speaker {i // 3}"})
    plain = [{key: value if isinstance(value, str) else value.tolist() for key, value in one.items()} for one in found]
    path.write_text("\n".join(map(json.dumps, plain)))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tagger(tmp_path_factory.mktemp("tagger") / "tagger.onnx")


@pytest.fixture(scope="module")
def data(model: Path) -> Path:
    return lines(model.parent / "data.jsonl", model)


def test_contributed_task(model: Path, data: Path, tmp_path: Path, run_python: RunPython) -> None:
    tasks = tmp_path / "contrib" / "utils" / "tasks"
    tasks.mkdir(parents=True)
    shutil.copy(ROOT / "contrib" / "utils" / "tasks" / "__init__.py", tasks)
    shutil.copy(foreign_task.__file__, tasks / "foreign_tags.py")
    out = tmp_path / "out"
    words = ["fix", model, "--data", data, "--task", "foreign_tags", *DIMS, "--batch_size", "16", "--tolerance", "0.05"]
    words += ["--out", out, "--json", out / "fix.json", "--", "--leave_out", "0"]
    code = (
        "import sys; from pathlib import Path; from toolkit.commands.fix import main;"
        f"sys.exit(main({[str(word) for word in words[1:]]}, Path({str(tmp_path)!r})))"
    )
    out.mkdir()
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found = json.loads((out / "fix.json").read_text())
    assert (found["verdict"], found["culprits"]) == ("fixed", ["square", "down"])
    assert found["facts"]["metric"] == "tag_error_rate"
    assert float(found["facts"]["before"]) > 3 * float(found["facts"]["baseline"]) > 0
    assert found["facts"]["after (pass file)"] == found["facts"]["baseline"] == found["facts"]["after (mixed ONNX)"]
    assert PassOptions.load(out / "tagger_fix_pass.py").skip_ops == {"square", "down"}
    kinds = {tensor.data_type for tensor in onnx.load(str(out / "tagger_mixed.onnx")).graph.initializer}
    assert {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT} <= kinds


def fixed(model: Path, data: Path, out: Path, task: base.Task = FOREIGN, metric: str | None = None, **how: Any) -> Any:
    given = {"tolerance": 0.05, "batch": 16, "dims": {"words": (4, 8, 12), "traits": (3,)}, "asked": TaskRequest(task)}
    return fix(model, data, metric, out, **{**given, **how})


def test_lower_is_better_and_units_are_used(model: Path, data: Path, tmp_path: Path) -> None:
    found = fixed(model, data, tmp_path)
    assert (found.verdict, found.culprits, found.metric) == ("fixed", ["square", "down"], "tag_error_rate")
    assert found.before.verdict is Verdict.FAIL
    assert found.before.metric > found.baseline
    assert found.before.units == 30  # speakers, of three samples each
    assert not found.before.higher_is_better
    records = found.trials[1].records
    assert (records.count, len(records) > 90, len(set(records.named))) == (90, True, 30)
    assert found.overflows == {"square", "down"}


def test_batch_axis_1(tmp_path: Path) -> None:
    model = tagger(tmp_path / "tagger.onnx", time_first=True)
    data = tmp_path / "data.jsonl"
    lines(data, tagger(tmp_path / "usual.onnx"))
    found = fixed(model, data, tmp_path, replace(FOREIGN, decode=decode_time_first))
    assert (found.verdict, found.culprits) == ("fixed", ["square", "down"])
    found = fixed(model, data, tmp_path, replace(FOREIGN, decode=decode_time_first), "agree")
    assert (found.verdict, found.culprits, found.before.samples) == ("fixed", ["square", "down"], 90)


def decode_time_first(outputs: Any, contexts: Any, model: Any, options: Any) -> Any:
    return foreign_task.decode(np.asarray(outputs).swapaxes(0, 1), contexts, model, options)


@pytest.mark.parametrize("metric", ["agree", "close"])
def test_raw_outputs_of_a_task_can_be_compared(metric: str, model: Path, data: Path, tmp_path: Path) -> None:
    found = fixed(model, data, tmp_path, FOREIGN, metric)
    assert (found.metric, found.verdict, found.culprits) == (metric, "fixed", ["square", "down"])


def test_decoding_error_is_a_failed_run(model: Path, data: Path, tmp_path: Path) -> None:
    def strict(outputs: Any, contexts: Any, model: Any, options: Any) -> Any:
        if not np.abs(outputs).max(-1).min() > 0:
            raise ValueError("all scores are\nzero")
        return foreign_task.decode(outputs, contexts, model, options)

    found = fixed(model, data, tmp_path, replace(FOREIGN, decode=strict))
    assert (found.verdict, found.culprits) == ("fixed", ["square", "down"])
    assert found.before.reason == "tag_error_rate: the outputs cannot be judged: all scores are zero"
    assert found.before.verdict is Verdict.FAIL


def test_failed_samples_are_skipped_with_a_note(model: Path, data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    bad = {"ids": [], "traits": [1], "tags": [], "speaker": "none"}
    broken.write_text(f"{json.dumps(bad)}\n{data.read_text()}")
    found = fixed(model, broken, tmp_path)
    assert (found.verdict, found.culprits) == ("fixed", ["square", "down"])
    assert "1 samples were skipped, the first: line 0: a line without ids" in found.notes
    with pytest.raises(DataError, match=r"line 0: .*without ids"):
        fixed(model, broken, tmp_path, limit=1)


# ------------------------------------------------------------------------------------------------------------- loops


def twice(engines: Any, arrays: Any, contexts: Any, state: Any) -> Any:
    """Call one model for the tags, and the other on two pieces whose answers are ignored."""
    scores = engines["tags"](arrays)
    assert state == "ready"
    for first in (0, len(arrays[0]) // 2):
        engines["again"]([arrays[0][first:, :4], arrays[1][first:]])
    return scores


def ready(engines: Any, dataset: Any, options: Any) -> str:
    return "ready"


LOOP = replace(FOREIGN, infer=twice, setup=ready, models=("tags", "again"))


@pytest.mark.parametrize("name", LOOP.models)
def test_task_with_two_models(name: str, model: Path, data: Path, tmp_path: Path) -> None:
    other = next(one for one in LOOP.models if one != name)
    asked = TaskRequest(LOOP, model_name=name, others={other: model})
    found = fixed(model, data, tmp_path, asked=asked)
    if name == "tags":
        assert (found.verdict, found.culprits) == ("fixed", ["square", "down"])
        assert found.after.metric == found.baseline
        assert "only tags runs on the card; again of task foreign_tags run in float32" in found.notes
    else:  # its answers do not count: what overflows in it is harmless
        assert found.verdict == "passes"


def test_raw_metrics_need_a_single_call(model: Path, data: Path, tmp_path: Path) -> None:
    asked = TaskRequest(LOOP, model_name="tags", others={"again": model})
    with pytest.raises(ConfigError, match=r"--metric.*tag_error_rate"):
        fixed(model, data, tmp_path, LOOP, "close", asked=asked)
    with pytest.raises(ConfigError, match=r"--model_name: .*tags, again"):
        fixed(model, data, tmp_path, LOOP)
    with pytest.raises(ConfigError, match="tags=FILE again=FILE"):
        fixed(model, data, tmp_path, asked=TaskRequest(LOOP, model_name="tags"))
    with pytest.raises(ConfigError, match="--model_name"):
        fixed(model, data, tmp_path, asked=TaskRequest(FOREIGN, model_name="tags"))


# ------------------------------------------------------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--target", "onnx"], "--target"),
        (["--dtype", "float32"], "--dtype"),
        (["--nonsense"], "task foreign_tags: unrecognized arguments: --nonsense"),
        (["--leave_out", "many"], "argument --leave_out: invalid int value: 'many'"),
        (["--batch_size", "3"], "--batch_size 3 after --"),
    ],
)
def test_invalid_task_flags(flags: list[str], expected: str, model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        fixed(model, data, tmp_path, asked=TaskRequest(FOREIGN, flags))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_task_flags(model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="zip\\(\\) argument 2 is longer"
    ):  # the metric compares what is left with all tags
        fixed(model, data, tmp_path, asked=TaskRequest(FOREIGN, ["--leave_out", "1"]))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model_name", "a"], "--model_name needs a task"),
        (["--ckpt", "a=b.onnx"], "--ckpt needs a task"),
        (["--", "--topk", "5"], "-- needs a task"),
        (["--task", "classification", "--ckpt", "b.onnx"], "write NAME=FILE"),
        (["--dim", "words"], "--dim 'words' is not NAME=SIZE"),
        (
            ["--dim", "letters=3"],
            "the model has no dimension 'letters'; its symbolic dimensions are: batch, traits, words",
        ),
        (["--data", "more"], "without --task"),
    ],
)
def test_contradictory_flags(words: list[str], expected: str, model: Path, data: Path) -> None:
    for command in ("fix", "overflow"):
        with pytest.raises((ConfigError, DataError)) as caught:
            execute([command, str(model), "--data", str(data), *words])
        assert expected in str(caught.value)


def test_overflow_takes_a_task(data: Path, model: Path, tmp_path: Path) -> None:
    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.graph.nodes import load_named

    wanted = SampleRequest(data, 16, dims={"words": (4, 8, 12), "traits": (3,)}, asked=TaskRequest(FOREIGN))
    with open_samples(model, load_named(model), wanted) as samples:
        found = {one.node.name: one for one in find_overflow(model, samples.calls(), 16)}
    assert {name for name, one in found.items() if one.overflows} == {"square"}
    assert found["square"].trigger == "line 0"


def teco(run_python: RunPython, *words: object) -> tuple[int, str]:
    """Run a command in a separate process, since this one has test folders on the task path."""
    done = run_python("-m", "toolkit.cli", *words)
    return done.returncode, done.stderr or done.stdout


@pytest.mark.slow
def test_a_task_of_the_zoo_through_the_command(tmp_path: Path, run_python: RunPython) -> None:
    digits = ROOT / "example" / "classification" / "digits"
    words = [digits / "digits_dyn.onnx", "--data", digits / "data" / "val", "--task", "classification"]
    behind = ["--", "--input_size", "32"]
    code, message = teco(run_python, "overflow", *words, "--samples", "8", *behind)
    assert (code, "0 of 21 nodes overflow float16" in message) == (0, True), message
    flags = ["--samples", "40", "--tolerance", "0.05", "--out", tmp_path]
    code, message = teco(run_python, "fix", *words, *flags, *behind)
    assert (code, "top1 1 against 1 of onnx float32" in message) == (0, True), message
    code, message = teco(run_python, "fix", *words, *flags, "--reference", "1.0", *behind)
    assert (code, "top1 is 1, the reference 1, without a change" in message) == (0, True), message
    code, message = teco(run_python, "fix", *words, "--shape", "input=1,3,8,8")
    assert (code, "--shape is for data without a task" in message) == (2, True), message
    code, message = teco(run_python, "fix", *words[:-1], "classificaton")
    assert (code, "did you mean 'classification'?" in message) == (2, True), message


# --------------------------------------------------------------------------------------------------------- mistakes


def test_only_last_steps_are_tried_without_images(model: Path, data: Path) -> None:
    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.fix.suspects import tried_inputs, try_suspects
    from toolkit.graph.nodes import load_named

    wanted = SampleRequest(data, 16, dims={"words": (12,), "traits": (3,)}, asked=TaskRequest(FOREIGN))
    with open_samples(model, load_named(model), wanted) as samples:
        measure = samples.measure(None)
        tried = try_suspects(model, samples, measure, 0.2)
        assert tried[0].name == "nothing changed"
        assert {one.name for one in tried} == {
            "nothing changed",
            "missing softmax",
            "missing sigmoid",
            "missing logarithm of the softmax",
        }
        assert tried[0].metric < 0.2  # lower is better: none explains it, the best comes first
        assert "no input is an image" in tried_inputs(samples)[0]


# ------------------------------------------------------------------------------------------- what is laid out by SPA


def packed(parts: Any, model: Any) -> base.Shards:
    """Return two packs of six rows: concatenated samples, padded with zeros."""
    rows = [row for part in parts for row in part.arrays[0]]
    packs = np.zeros((2, 6, 4), np.float32)
    for i, row in enumerate(rows):
        packs[i % 2, i // 2] = row
    return base.Shards([[pack] for pack in packs])


def unpacked(outputs: Any, contexts: Any, model: Any, options: Any) -> list[float]:
    assert len(outputs) == 2
    return [float(np.asarray(outputs[i % 2][0])[i // 2, 0]) for i in range(len(contexts))]


class MeanError(RecordMetric):
    """Root mean squared error: lower is better, and not a mean of records."""

    name, higher_is_better = "rmse", False

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Array:
        return np.asarray(predictions, float) - np.asarray(targets, float)

    def value(self, records: Any, weights: Any) -> float:
        return float(np.sqrt((records**2 * weights).sum() / weights.sum()))


def test_sharded_samples(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    """The rows of a pack are centred on their maximum: they cannot be split, and the graph has no batch axis."""
    path = save_onnx(
        "g (float[nodes,4] x) => (float[nodes,1] y) <int64[1] last = {1}, float[1] small = {0.0001}>"
        "{ [square] s = Mul(x, x) [down] d = Mul(s, small) [sum] m = ReduceSum(d, last)"
        " [largest] w = ReduceMax <axes = [0]> (m) [end] y = Div(m, w) }"
    )
    rng = np.random.default_rng(0)
    x = rng.uniform(100, 400, (30, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    task = replace(
        FOREIGN,
        name="packs",
        load=lambda paths, options: base_dataset(x),
        prepare=lambda samples, model, options: base.Prepared([np.stack(samples)], [None] * len(samples)),
        collate=packed,
        decode=unpacked,
        metric=lambda options, dataset, model: MeanError(),
    )
    how = {"dims": {"nodes": (6,)}, "batch": 10, "tolerance": 0.05}
    found = fixed(path, tmp_path / "x.npy", tmp_path / "out", task, **how)
    assert (found.verdict, found.culprits, found.metric) == ("fixed", ["square", "down"], "rmse")
    with pytest.raises(ConfigError, match=r"metric close .*task packs"):
        fixed(path, tmp_path / "x.npy", tmp_path / "out", task, "close", **how)


def base_dataset(x: Array) -> Any:
    from utils.datasets.base import ListDataset

    return ListDataset(list(x), [0.4] * len(x))
