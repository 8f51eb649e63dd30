"""int8 compared with float32, recipe by recipe: agreement and speedup on both CPU engines.

The speedup is relative to float32 on the same engine, and to float32 on ONNX Runtime, the baseline of the zoo.

MiniLM is the real one (real_models.py): calibrated on 64 sentences, judged by 320 others. The CNN for digits is trained
too: calibrated on every eighth of its validation images, judged by the others. resnet50 has random weights, so only its
speed is reported.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from parts.bench import DIGITS, arguments, finish, take_turns
from parts.networks import resnet

from engine import INT8_RECIPES, Array, EngineSpec, ModelError, open_engine, quantize
from engine.measures import differences
from engine.onnx import save_model
from utils.preprocess.pytorch.classification import preprocess

Feed = Mapping[str, Array]
Run = Callable[[Feed], Array]
Agree = Callable[[Array, Array], float]

BOUND = 0.99
"""Cosine that ``--dtype int8`` wants (``--min_cosine``)."""

TIMED = 2
"""Batches of a turn."""


@dataclass(frozen=True)
class Case:
    """A model with its calibration samples (one per call) and its test batches."""

    name: str
    path: Path
    calibration: Sequence[Feed]
    judged: Sequence[Feed]
    what: str = ""
    """What ``agree`` counts; empty where the weights are random."""
    agree: Agree | None = None


def minilm_case(folder: Path, quick: bool) -> Case:
    """Return MiniLM with sentences, in batches of 32."""
    from parts.real_models import minilm, sentences, tokens

    texts = sentences(64 + (64 if quick else 320))
    batches = [texts[start : start + 32] for start in range(64, len(texts), 32)]
    feeds = [_tokens(tokens(batch)) for batch in batches]
    calibration = [_tokens(tokens([text])) for text in texts[:64]]
    return Case("MiniLM", minilm(folder / "minilm"), calibration, feeds, "nearest neighbour", neighbours)


def _tokens(arrays: Sequence[Array]) -> Feed:
    return dict(zip(("input_ids", "attention_mask"), arrays, strict=True))


def digits_case(_: Path, quick: bool) -> Case:
    """Return the CNN for digits with the images of its folder, in batches of 64."""
    files = sorted((DIGITS / "data/val").rglob("*.png"))
    images = preprocess([str(file) for file in files], "float32", 32, 32)
    known = images[::8]
    rest = np.delete(images, np.s_[::8], axis=0)[: 64 if quick else None]
    return Case(
        "digits CNN",
        DIGITS / "digits_dyn.onnx",
        [{"input": one[None]} for one in known],
        [{"input": rest[start : start + 64]} for start in range(0, len(rest), 64)],
        "class",
        lambda got, want: float((got.argmax(1) == want.argmax(1)).mean()),
    )


def resnet50_case(folder: Path, quick: bool) -> Case:
    """Return a ResNet-50 with random weights and random images, in batches of 8."""
    path = folder / "resnet50.onnx"
    save_model(resnet(), path)
    random = np.random.default_rng(0)
    images = random.standard_normal((4 if quick else 16, 3, 224, 224)).astype(np.float32)
    name = open_engine("onnx", EngineSpec(path)).inputs[0].name
    return Case("resnet50 (random weights)", path, [{name: one[None]} for one in images[:4]], [{name: images[:8]}])


CASES = {"minilm": minilm_case, "digits": digits_case, "resnet50": resnet50_case}


def neighbours(got: Array, want: Array) -> float:
    """Return the share of sentences with the same nearest other sentence by both embeddings."""
    nearest = []
    for vectors in (got, want):
        finite = np.where(np.isfinite(vectors), vectors, 0)
        near = finite @ finite.T
        np.fill_diagonal(near, -np.inf)
        nearest.append(near.argmax(axis=1))
    return float((nearest[0] == nearest[1]).mean())


def onnx_runtime(path: Path) -> Run:
    """Open a model on ONNX Runtime."""
    engine = open_engine("onnx", EngineSpec(path))
    names = [tensor.name for tensor in engine.inputs]
    return lambda feed: np.asarray(engine([feed[name] for name in names]))


def openvino(path: Path) -> Run:
    """Open a model on OpenVINO, as target ``cpu`` does."""
    import openvino as ov

    compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda feed: np.array(compiled(dict(feed))[0])


RUNTIMES = {"ONNX Runtime": onnx_runtime, "OpenVINO": openvino}


def measure(case: Case, folder: Path, rounds: int) -> dict[str, Any]:
    """Return a model's figures by recipe and runtime."""
    exact = {name: start(case.path) for name, start in RUNTIMES.items()}
    want = np.concatenate([exact["ONNX Runtime"](feed) for feed in case.judged])
    found: dict[str, Any] = {}
    for recipe in INT8_RECIPES.values():
        path = folder / f"{recipe.name}.onnx"
        start = time.perf_counter()
        try:
            path.write_bytes(quantize(case.path, case.calibration, recipe))
        except ModelError as error:
            found[recipe.name] = {"refused": str(error)}
            continue
        made = time.perf_counter() - start
        runs = {name: _beside(case, open_it(path), exact, name, want, rounds) for name, open_it in RUNTIMES.items()}
        found[recipe.name] = {"seconds_to_make": made, "runtimes": runs}
    return found


def _beside(case: Case, run: Run, exact: Mapping[str, Run], runtime: str, want: Array, rounds: int) -> dict[str, Any]:
    """Return agreement, and speedup relative to float32 on the same runtime and on ONNX Runtime, measured in turn."""
    found: dict[str, Any] = {}
    if case.agree is not None:
        got = np.concatenate([run(feed) for feed in case.judged])
        cosines = [differences([a], b, 0.0)[0].cosine for a, b in zip(got, want, strict=True)]
        each = [0.0 if math.isnan(cosine) else cosine for cosine in cosines]  # of answers that hold NaN
        found |= {"cosine": statistics.mean(each), "least_cosine": min(each), "agreement": case.agree(got, want)}
    for key, name in (("times_float32", runtime), ("times_baseline", next(iter(RUNTIMES)))):
        turns = take_turns(lambda: _seconds(run, case), partial(_seconds, exact[name], case), rounds)
        found[key] = 1 / turns.ratio
    return found


def _seconds(run: Run, case: Case) -> float:
    start = time.perf_counter()
    for feed in case.judged[:TIMED]:
        run(feed)
    return time.perf_counter() - start


def show(case: Case, found: Mapping[str, Any]) -> None:
    """Print a model's figures."""
    judged = sum(len(next(iter(feed.values()))) for feed in case.judged)
    print(f"{case.name}: calibrated on {len(case.calibration)} samples, {judged} others")
    for recipe, one in found.items():
        for runtime, run in one.get("runtimes", {}).items():
            near = f"cosine {run['cosine']:.4f} (least {run['least_cosine']:.4f}), " if case.what else ""
            same = f"same {case.what} {run['agreement']:.1%}, " if case.what else ""
            print(
                f"  {recipe:8} {runtime:13} {near}{same}{run['times_float32']:.2f} times float32's speed, "
                f"{run['times_baseline']:.2f} times the baseline's"
            )
        if "refused" in one:
            print(f"  {recipe:8} {one['refused']}")


def main() -> None:
    """Measure the requested models."""
    parser = arguments(__doc__)
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES), help="which models")
    parser.add_argument("--rounds", type=int, default=7, help="turns of int8 and float32")
    args = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tecoinfer-bench-") as name:
        for key in args.models:
            case = CASES[key](Path(name), args.quick)
            result[key] = measure(case, Path(name), 2 if args.quick else args.rounds)
            show(case, result[key])
    finish("int8", {"models": result, "bound": BOUND}, args)


if __name__ == "__main__":
    main()
