"""Detection rate of ``teco fix`` for user mistakes with detectors: single, in pairs, and none.

A detector is changed as another exporter would have written it (box format, units, a background class, logits, BGR,
another range of values), or its source resizes images in another way (corner, stretched, another fill). The command
gets the source's final detections (``--golden``), or only its mAP on the labelled data (``--reference``). It must
report exactly the flags that correct the mistake, and nothing for a correct detector.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from parts.bench import arguments, finish

from engine import open_engine
from toolkit.cli import execute
from toolkit.fix.choice_trials import GAIN
from toolkit.fix.opening import SampleRequest, open_samples
from toolkit.fix.records import Feed
from toolkit.fix.task_request import TaskRequest
from toolkit.fix.task_samples import TaskSamples
from utils.metrics.base import Metric
from utils.preprocess.image.modes import MEAN, STD
from utils.stored import ModelMetadata
from utils.tasks.detection.task import Detection

WANTED = 0.95
"""Required fraction of identified mistakes; none may be reported for healthy detectors."""

Change = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Mistake:
    """A mistake.

    Attributes:
        change: changes the model to that of another exporter; ``None``: the model is unchanged.
        right: the flags that correct it, with which the source also runs.
        group: mistakes of one group exclude each other.
        lossy: whether it lowers the metric; otherwise only the source's answers can show it.
    """

    change: Change | None
    right: Mapping[str, Any]
    group: str
    lossy: bool = True


def boxes_by(matrix: np.ndarray) -> Change:
    """Return a change that multiplies every box, as a row, by a 4 x 4 matrix."""

    def change(model: onnx.ModelProto) -> None:
        _behind(model, "boxes", [("MatMul", ["boxes_as_they_were", "box_matrix"], {})], {"box_matrix": matrix})

    return change


def units(model: onnx.ModelProto) -> None:
    """Return boxes relative to the size of the input."""
    height, width = (dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[2:])
    boxes_by(np.diag([1 / width, 1 / height] * 2))(model)


def background(model: onnx.ModelProto) -> None:
    """Insert a class before all others."""
    pads = np.array([0, 0, 1, 0, 0, 0], np.int64)
    _behind(model, "scores", [("Pad", ["scores_as_they_were", "class_pads"], {})], {"class_pads": pads})
    classes = model.graph.output[_place(model, "scores")].type.tensor_type.shape.dim[2]
    classes.dim_value += 1


def named_background(model: onnx.ModelProto) -> None:
    """Store a label of a background class that the model lacks."""
    entry = next(entry for entry in model.metadata_props if entry.key == "class_labels")
    entry.value = json.dumps(["background", *json.loads(entry.value)])


def logits(model: onnx.ModelProto) -> None:
    """Remove the last sigmoid."""
    steps: list[tuple[str, list[str], dict[str, Any]]] = [
        ("Clip", ["scores_as_they_were", "score_low", "score_high"], {}),
        ("Sub", ["score_one", "scores_0"], {}),
        ("Div", ["scores_0", "scores_1"], {}),
        ("Log", ["scores_2"], {}),
    ]
    held = {"score_low": np.float32(1e-6), "score_high": np.float32(1 - 1e-6), "score_one": np.float32(1)}
    _behind(model, "scores", steps, held)


def twice(model: onnx.ModelProto) -> None:
    """Apply a sigmoid to probabilities."""
    _behind(model, "scores", [("Sigmoid", ["scores_as_they_were"], {})], {})


def reversed_channels(model: onnx.ModelProto) -> None:
    """Change the input of the model to BGR."""
    _before(model, [("Gather", ["image_given", "channel_order"], {"axis": 1})], {"channel_order": np.array([2, 1, 0])})


def values(mean: Sequence[float], std: Sequence[float]) -> Change:
    """Return a change to another mean and standard deviation of the input than the stored ones."""

    def change(model: onnx.ModelProto) -> None:
        notes = ModelMetadata({entry.key: entry.value for entry in model.metadata_props}).image
        own_mean, own_std = np.array(notes.mean), np.array(notes.std)
        spread = (np.array(std) / own_std).astype(np.float32).reshape(1, 3, 1, 1)
        middle = ((np.array(mean) - own_mean) / own_std).astype(np.float32).reshape(1, 3, 1, 1)
        steps: list[tuple[str, list[str], dict[str, Any]]] = [
            ("Mul", ["image_given", "value_std"], {}),
            ("Add", ["image_0", "value_mean"], {}),
        ]
        _before(model, steps, {"value_std": spread, "value_mean": middle})

    return change


_SIZES = np.array([[1, 0, -1, 0], [0, 1, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
"""Corners, as a row, times this are corner and size."""
_CENTRES = np.array([[0.5, 0, -1, 0], [0, 0.5, 0, -1], [0.5, 0, 1, 0], [0, 0.5, 0, 1]], np.float32)
_TURNED = np.eye(4, dtype=np.float32)[[1, 0, 3, 2]]

MISTAKES = {
    "corner and size": Mistake(boxes_by(_SIZES), {"box_format": "xywh"}, "format"),
    "centre and size": Mistake(boxes_by(_CENTRES), {"box_format": "cxcywh"}, "format"),
    "y before x": Mistake(boxes_by(_TURNED), {"box_format": "yxyx"}, "format"),
    "shares of the input": Mistake(units, {"box_units": "unit"}, "units"),
    "background first": Mistake(background, {"class_offset": 1}, "classes"),
    "background named only": Mistake(named_background, {"class_offset": -1}, "classes"),
    "logits": Mistake(logits, {"score_form": "logit"}, "scores", lossy=False),
    "two sigmoids": Mistake(twice, {"score_form": "twice"}, "scores", lossy=False),
    "BGR": Mistake(reversed_channels, {"channel_order": "BGR"}, "channels"),
    "0 to 255": Mistake(values((0,) * 3, (1 / 255,) * 3), {"pixel_values": "0..255"}, "values"),
    "-1 to 1": Mistake(values((0.5,) * 3, (0.5,) * 3), {"pixel_values": "-1..1"}, "values"),
    "ImageNet's mean": Mistake(values(MEAN, STD), {"pixel_values": "imagenet"}, "values"),
    "corner": Mistake(None, {"resize": "corner"}, "resize", lossy=False),
    "stretched": Mistake(None, {"resize": "stretch"}, "resize", lossy=False),
    "black fill": Mistake(None, {"fill": 0}, "fill", lossy=False),
    "no antialiasing": Mistake(None, {"interpolation": "opencv"}, "filter", lossy=False),
    "overlap 0.7": Mistake(None, {"iou_threshold": 0.7}, "overlap", lossy=False),
    "over all classes": Mistake(None, {"nms": "all"}, "nms", lossy=False),
    "no suppression": Mistake(None, {"nms": "none"}, "nms", lossy=False),
    "score 0.25": Mistake(None, {"score_threshold": 0.25}, "score", lossy=False),
}


def _place(model: onnx.ModelProto, name: str) -> int:
    return [output.name for output in model.graph.output].index(name)


def _behind(
    model: onnx.ModelProto,
    name: str,
    steps: Sequence[tuple[str, list[str], dict[str, Any]]],
    held: Mapping[str, Any],
) -> None:
    """Insert nodes before an output."""
    graph = model.graph
    old = f"{name}_as_they_were"
    stem = f"{name}_{sum(node.name.startswith(name) for node in graph.node)}"
    taken = f"{old}_{stem}"
    for node in graph.node:
        node.output[:] = [taken if one == name else one for one in node.output]
        node.input[:] = [taken if one == name else one for one in node.input]
    names = [f"{stem}_{i}" for i in range(len(steps) - 1)] + [name]
    for i, (op, given, attributes) in enumerate(steps):
        inputs = [_renamed(one, old, taken, stem, name) for one in given]
        graph.node.append(helper.make_node(op, inputs, [names[i]], f"{name}_step_{stem}_{i}", **attributes))
    _hold(graph, {f"{stem}/{key}": value for key, value in held.items()})


def _renamed(one: str, old: str, taken: str, stem: str, name: str) -> str:
    if one == old:
        return taken
    return f"{stem}_{one.rpartition('_')[2]}" if one.rpartition("_")[0] == name else f"{stem}/{one}"


def _before(
    model: onnx.ModelProto, steps: Sequence[tuple[str, list[str], dict[str, Any]]], held: Mapping[str, Any]
) -> None:
    """Insert nodes after the first input."""
    graph, name = model.graph, model.graph.input[0].name
    stem = f"image_{sum(node.name.startswith('image') for node in graph.node)}"
    read = f"{stem}_read"
    for node in graph.node:
        node.input[:] = [read if one == name else one for one in node.input]
    made = []
    for i, (op, given, attributes) in enumerate(steps):
        inputs = [name if one == "image_given" else _renamed(one, "", "", stem, "image") for one in given]
        output = read if i == len(steps) - 1 else f"{stem}_{i}"
        made.append(helper.make_node(op, inputs, [output], f"image_step_{stem}_{i}", **attributes))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*made, *rest])
    _hold(graph, {f"{stem}/{key}": value for key, value in held.items()})


def _hold(graph: onnx.GraphProto, held: Mapping[str, Any]) -> None:
    for key, value in held.items():
        array = np.asarray(value)
        graph.initializer.append(
            numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, key)
        )


class Source:
    """A correct detector with its data and the detections of the source framework.

    Args:
        model: its file. data: COCO's JSON. folder: for files. flags: of the task, that the model runs with.
    """

    def __init__(self, model: Path, data: Path, folder: Path, samples: int | None = None) -> None:
        self.model, self.data, self.folder, self.samples = model, data, folder, samples

    def golden(self, flags: Mapping[str, Any]) -> tuple[Path, float]:
        """Write the detections with some flags in COCO's results format; return the file and the mAP."""
        content = json.loads(self.data.read_text(encoding="utf-8"))
        ids = {str(self.data.parent / image["file_name"]): image["id"] for image in content["images"]}
        by_name = {one["name"]: one["id"] for one in content["categories"]}
        rows: list[dict[str, Any]] = []
        metric: Metric | None = None
        for samples, part, found in self._answers(flags):
            labels = samples.model.stored.labels or sorted(by_name, key=lambda name: by_name[name])
            metric = metric or samples.measure(None).make()
            metric.update(found, part.targets)
            for name, one in zip(part.names, found, strict=True):
                for box, score, label in zip(*(column.tolist() for column in one), strict=True):
                    sides = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
                    place = {"image_id": ids[name], "category_id": by_name[labels[label]]}
                    rows.append({**place, "bbox": sides, "score": score})
        assert metric is not None
        file = self.folder / "golden.json"
        file.write_text(json.dumps(rows), encoding="utf-8")
        return file, float(metric.compute())

    def metric(self) -> float:
        """Return the mAP without mistakes."""
        metric: Metric | None = None
        for samples, part, found in self._answers({}):
            metric = metric or samples.measure(None).make()
            metric.update(found, part.targets)
        assert metric is not None
        return float(metric.compute())

    def _answers(self, flags: Mapping[str, Any]) -> Iterator[tuple[TaskSamples, Feed, Any]]:
        wanted = SampleRequest([str(self.data)], 16, self.samples, asked=TaskRequest(Detection, _words(flags)))
        with open_samples(self.model, onnx.load(self.model), wanted) as samples:
            assert isinstance(samples, TaskSamples)
            with open_engine("onnx", samples.spec(self.model)) as engine:
                for part, outputs in samples.run(engine):
                    yield samples, part, samples.task.decode(outputs, part.contexts)

    def exported(self, mistakes: Sequence[Mistake]) -> Path:
        """Write the model with these mistakes; return the file."""
        model = onnx.load(self.model)
        for mistake in mistakes:
            if mistake.change is not None:
                mistake.change(model)
        onnx.checker.check_model(model)
        path = self.folder / "exported.onnx"
        onnx.save(model, path)
        return path


def _words(flags: Mapping[str, Any]) -> list[str]:
    return [word for key, value in flags.items() for word in (f"--{key}", str(value).lower())]


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the tool: mistakes, command, result, and whether it is correct."""

    planted: tuple[str, ...]
    asked: str
    wanted: str
    named: str
    found: bool
    seconds: float


def asked(source: Source, names: Sequence[str], by_metric: bool) -> Row | None:
    """Make mistakes and run the tool; ``None`` if the metric hardly changes."""
    mistakes = [MISTAKES[name] for name in names]
    right = {key: value for mistake in mistakes for key, value in mistake.right.items()}
    geometry = {k: v for mistake in mistakes if mistake.change is None for k, v in mistake.right.items()}
    golden, reference = source.golden(geometry)
    path = source.exported(mistakes)
    if names and by_metric and _costs_nothing(source, path, reference):
        return None
    goal = ["--reference", f"{reference:.6f}"] if by_metric else ["--golden", str(golden)]
    start = time.perf_counter()
    found = told(source, path, goal)
    seconds = time.perf_counter() - start
    named = found["found"]
    accepted = {key: [value, *found["equal"].get(key, ())] for key, value in named.items()}
    good = set(named) == set(right) and all(right[key] in accepted[key] for key in right)
    if not names:
        good = not named and found["explained"]
    return Row(tuple(names), "reference" if by_metric else "golden", str(right), str(named), good, seconds)


def _changes_nothing(source: Source, mistake: Mistake) -> bool:
    """Return whether a detector has the same detections as the source in spite of a mistake."""
    golden, _ = source.golden({} if mistake.change is not None else mistake.right)
    path = source.exported([mistake])
    shares: list[float] = []
    right: list[Any] = []
    for samples, _, found in Source(path, source.data, source.folder, source.samples)._answers({}):
        right = right or list(samples.task.reference_answers(golden, samples.dataset))
        for one in found:
            other = right[len(shares)]
            shares.append(1.0 if other is None else samples.task.agreement(one, other))
    return float(np.mean(shares)) > 1 - GAIN


def _costs_nothing(source: Source, path: Path, reference: float) -> bool:
    """Return whether a mistake hardly lowers the metric."""
    return Source(path, source.data, source.folder, source.samples).metric() > reference * 0.97


def told(source: Source, path: Path, goal: Sequence[str]) -> dict[str, Any]:
    """Return the tool's JSON output."""
    file = source.folder / "found.json"
    file.unlink(missing_ok=True)
    words = ["fix", str(path), "--data", str(source.data), "--task", "detection", *goal, "--json", str(file)]
    words += [] if source.samples is None else ["--samples", str(source.samples)]
    with contextlib.redirect_stdout(io.StringIO()):
        execute(words)
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def measured(source: Source, singles: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Iterator[Row | None]:
    """Yield a run per mistake and pair of mistakes, and of the correct detector."""
    for by_metric in (False, True):
        yield asked(source, [], by_metric)
    tried = dict.fromkeys([*singles, *(name for pair in pairs for name in pair)])
    harmless = {name for name in tried if _changes_nothing(source, MISTAKES[name])}
    for name in singles:
        if name not in harmless:
            yield asked(source, [name], by_metric=False)
        if MISTAKES[name].lossy:
            yield asked(source, [name], by_metric=True)
    for pair in pairs:
        if not harmless & set(pair):
            yield asked(source, pair, by_metric=False)


def all_pairs() -> list[tuple[str, str]]:
    """Return the pairs of mistakes that can be made together."""
    return [(a, b) for a, b in combinations(MISTAKES, 2) if MISTAKES[a].group != MISTAKES[b].group]


def main() -> int:
    """Run all; the exit code is 1 if too few mistakes were found, or on a false positive."""
    parser = arguments(__doc__)
    parser.add_argument("--model", type=Path, help="a correct detector (default: the template's, of squares)")
    parser.add_argument("--data", type=Path, help="COCO's JSON, with images of different proportions")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of mistakes, drawn at random")
    parser.add_argument("--singles", nargs="+", choices=list(MISTAKES), help="only these, and no pairs")
    parser.add_argument("--samples", type=int, help="images to take")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    every = all_pairs()
    pairs = [every[i] for i in rng.permutation(len(every))[: 2 if args.quick else args.pairs]]
    singles = ["centre and size", "BGR", "stretched"] if args.quick else list(MISTAKES)
    if args.singles:
        singles, pairs = args.singles, []
    rows = []
    with tempfile.TemporaryDirectory(prefix="mistakes-") as text:
        folder = Path(text)
        model, data = (args.model, args.data) if args.model else squares(folder)
        for row in measured(Source(model, data, folder, args.samples), singles, pairs):
            if row is None:
                continue
            rows.append(row)
            verdict = "" if row.found else f"   MISSED: named {row.named}, planted {row.wanted}"
            print(f"{' + '.join(row.planted) or 'healthy':45} {row.asked:10} {row.seconds:6.1f} s{verdict}", flush=True)
    planted = [row for row in rows if row.planted]
    alarms = sum(not row.found for row in rows if not row.planted)
    found = sum(row.found for row in planted)
    share = found / len(planted)
    print(f"named {found} of {len(planted)} ({share:.1%}); {alarms} false alarms on the healthy detector")
    finish("detector_mistakes", {"share": share, "false_alarms": alarms, "rows": [asdict(row) for row in rows]}, args)
    return 1 if alarms or share < WANTED else 0


def squares(folder: Path) -> tuple[Path, Path]:
    """Write the detector of ``teco new detection``, which detects its squares, and its data."""
    import subprocess
    from string import Template

    template = Detection.template
    assert template is not None
    root = Path(__file__).resolve().parents[2]
    words = {"model": "squares", "title": "Squares", "folder": "example/x/squares", "install": ""}
    words |= {"paths": f'sys.path.insert(0, "{root}")', **template.fill(folder)}
    for file in template.folder.glob("*.py.tmpl"):
        text = Template(file.read_text(encoding="utf-8")).substitute(words)
        (folder / file.name.removesuffix(".tmpl")).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "export_onnx.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "squares_dyn.onnx", folder / "data" / "val.json"


if __name__ == "__main__":
    sys.exit(main())
