"""The contestants of ``throughput.py``: our pipeline and usual alternatives, each with its best settings.

Every maker takes a :class:`Setup`, opens its model and returns a :class:`Contestant`. Each runs in a separate process
(:mod:`throughput_processes`), so that threads, settings and memory are independent. Only the import of this file is
common; vendor packages are imported by the function that needs them.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import numpy as np

from engine import Array, ConfigError, Engine, EngineSpec, open_engine, usable_cores
from parts import bench  # noqa: F401 -- puts the repository on the path
from parts.preprocessing import opencv_into, plain as pillow_and_numpy
from utils.datasets import Batches, load_dataset
from utils.datasets.samples import Batch
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.postprocess.pytorch.classification import scores
from utils.preprocess.image import modes
from utils.preprocess.pytorch.classification import preprocess

NO_COMPUTE = "no-compute"
MEAN, STD = np.float32(modes.MEAN), np.float32(modes.STD)
STEP = 32
"""Step in pixels, along both sides, at which the no-compute "model" samples the image, to compare preprocessing."""

LIMIT_SECONDS = 1.0
"""Minimum duration of the measurement of each stage's limit in a turn, if there are enough images."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Common setup of the contestants: one model on one folder of images."""

    model: str
    ckpt: Path
    images: Path
    batch_size: int
    resize: int = modes.RESIZE
    crop: int = modes.CROP
    calibration: int = 64
    """Images for the calibration of int8."""
    decode: str = "exact"

    @property
    def computes(self) -> bool:
        """Whether there is a model."""
        return self.model != NO_COMPUTE

    def batches(self) -> Batches:
        """Return the images in batches, in the same order for every contestant."""
        return load_dataset(self.images).batches(self.batch_size)

    def prepare(self) -> Callable[..., Array]:
        """Return our preprocess function for this model."""
        return partial(preprocess, dtype="float32", resize_shape=self.resize, crop_shape=self.crop, decode=self.decode)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A contestant.

    Attributes:
        turn: run every image once; returns the scores, N x C.
        note: its description. check: returns the scores to compare, if a turn itself returns none.
    """

    turn: Callable[[], Array]
    note: str
    check: Callable[[], Array] | None = None


def _sampled(array: Array) -> Array:
    """Compute the result of the no-compute model."""
    return np.ascontiguousarray(array[:, :, ::STEP, ::STEP]).reshape(len(array), -1)


# --- ours


def _open(setup: Setup, target: str, dtype: str = "float32", streams: int | None = None) -> Engine:
    shape = (setup.batch_size, 3, setup.crop, setup.crop)
    options: dict[str, Any] = {"dtype": dtype, "streams": streams or usable_cores()}
    if dtype == "int8":
        if "calibration" not in {field.name for field in fields(EngineSpec)}:
            raise ConfigError("this EngineSpec knows no calibration; int8 is not built yet")
        options["calibration"] = setup.calibration
    return open_engine(target, EngineSpec(setup.ckpt, setup.batch_size, (shape,), **options))


def _evaluated(engine: Engine, setup: Setup, batches: Batches) -> Array:
    """Run ``evaluate`` as a valid script does, keeping the scores."""
    kept: list[Array] = []

    def post(outputs: Any) -> Array:
        kept.append(scores(outputs))
        return kept[-1]

    evaluate(engine, batches, setup.prepare(), post, TopK())
    return np.concatenate(kept)


def ours(setup: Setup, target: str = "onnx", dtype: str = "float32") -> Contestant:
    """Return our pipeline: ``evaluate`` with one stream per core."""
    batches = setup.batches()
    if setup.computes:
        engine = _open(setup, target, dtype)
        return Contestant(lambda: _evaluated(engine, setup, batches), f"evaluate(), {engine.describe()}")
    idle, check = _open(setup, "null"), _open(setup, "onnx")
    turn = partial(_evaluated, idle, setup, batches)
    return Contestant(turn, f"evaluate(), {idle.describe()}", partial(_evaluated, check, setup, batches))


def ours_cpu(setup: Setup) -> Contestant:
    """Return our pipeline on target ``cpu`` in float32."""
    return ours(setup, "cpu")


def ours_reduced(setup: Setup) -> Contestant:
    """Return our pipeline on the fastest target with ``--decode reduced``, which is inexact like OpenCV."""
    return ours(replace(setup, decode="reduced"), "cpu" if setup.computes else "null")


def ours_int8(setup: Setup) -> Contestant:
    """Return our pipeline on target ``cpu`` in int8."""
    return ours(setup, "cpu", "int8")


# --- the limit, and engines alone


def limit(setup: Setup, target: str = "onnx") -> Contestant:
    """Return the contestant that measures the cost of an image: CPU seconds of preprocessing and of inference.

    Each stage is measured alone, over all threads of the process, and inference twice: with all cores on one call, and
    with one thread per call. The lower value counts.
    """
    # None of them, one stream, or one per core: what the engine's call then has are all cores, or its share of one.
    engines = [_open(setup, target, streams=n) for n in sorted({1, usable_cores()})] if setup.computes else []
    prepare, out = setup.prepare(), np.empty((setup.batch_size, 3, setup.crop, setup.crop), np.float32)

    def preparing(batch: Batch) -> object:
        return prepare(batch.samples, out=out[: len(batch.names)])

    def turn() -> Array:
        first = _cost(preparing, setup.batches())
        calls = [partial(_call, engine, out) for engine in engines]
        return np.array([first, min((_cost(call, setup.batches()) for call in calls), default=0.0)])

    return Contestant(turn, "CPU seconds per image of preprocessing and of inference")


def _call(engine: Engine, array: Array, batch: Batch) -> object:
    return engine(array[: len(batch.names)])


def _cost(work: Callable[[Batch], object], batches: Iterable[Batch]) -> float:
    """Return the CPU seconds of an image, over all threads of the process."""
    images, cpu, end = 0, time.process_time(), time.perf_counter() + LIMIT_SECONDS
    for batch in batches:
        work(batch)
        images += len(batch.names)
        if time.perf_counter() > end:
            break
    return (time.process_time() - cpu) / images


def processes(setup: Setup) -> Contestant:
    """Return one process per core, each of which preprocesses and runs whole batches in one thread.

    What the cores can do at the same time: they share the memory and the clock, so that together they are slower than
    each alone, which :func:`limit` measures. A process has no pipeline, no metric and no other thread to wait for.
    """
    context = multiprocessing.get_context("spawn")
    pipes = []
    for _ in range(usable_cores()):
        near, far = context.Pipe()
        context.Process(target=_serve_alone, args=(far, setup), daemon=True).start()
        near.recv()  # its session is open
        pipes.append(near)
    batches = [list(batch.samples) for batch in setup.batches()]
    note = f"{usable_cores()} processes, each with our preprocess and a session of one thread"
    return Contestant(partial(_shared_out, batches, pipes), note)


def _serve_alone(pipe: Connection, setup: Setup) -> None:
    """Answer batches of samples with their scores: a child of :func:`processes`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run, prepare = _session(setup, threads=1), setup.prepare()
    pipe.send(None)
    while True:
        pipe.send(scores(run(prepare(pipe.recv()))))


def _shared_out(batches: Sequence[Any], pipes: Sequence[Connection]) -> Array:
    """Send every process its next batch as soon as it has answered."""
    kept: list[Any] = [None] * len(batches)
    waiting, busy = deque(enumerate(batches)), {}

    def send(pipe: Connection) -> None:
        if waiting:
            busy[pipe], batch = waiting.popleft()
            pipe.send(batch)

    for pipe in pipes:
        send(pipe)
    while busy:
        for pipe in cast(list[Connection], wait(list(busy))):
            kept[busy.pop(pipe)] = pipe.recv()
            send(pipe)
    return np.concatenate(kept)


def limit_cpu(setup: Setup) -> Contestant:
    """Return the contestant that measures the cost of an image on target ``cpu``."""
    return limit(setup, "cpu")


def _prepared(setup: Setup) -> list[Array]:
    return [setup.prepare()(batch.samples) for batch in setup.batches()]


def engine_onnxruntime(setup: Setup) -> Contestant:
    """Return ONNX Runtime's default session alone, on images preprocessed before."""
    run, arrays = _session(setup), _prepared(setup)
    return Contestant(lambda: np.concatenate([run(array) for array in arrays]), "session.run alone, float32")


def engine_int8(setup: Setup) -> Contestant:
    """Return target ``cpu`` in int8 alone, on images preprocessed before."""
    engine, arrays = _open(setup, "cpu", "int8"), _prepared(setup)
    if engine.calibration_samples:
        engine.calibrate([array] for array in arrays[: -(-engine.calibration_samples // setup.batch_size)])

    def turn() -> Array:
        calls = [engine.run_async(array) for array in arrays]
        return np.concatenate([np.asarray(call.result()) for call in calls])

    return Contestant(turn, f"engine alone, {engine.describe()}")


# --- peers


def _session(setup: Setup, threads: int = 0) -> Callable[[Array], Array]:
    """Return the model on ONNX Runtime with the options a session has by default; ``threads`` 0: one per core."""
    if not setup.computes:
        return _sampled
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(setup.ckpt), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda array: session.run(None, {name: array})[0]  # type: ignore[no-any-return]


def _in_turn(setup: Setup, prepare: Callable[[Any], Array], note: str) -> Contestant:
    """Return the contestant that preprocesses and runs one batch after the other."""
    run, batches = _session(setup), setup.batches()

    def turn() -> Array:
        metric, kept = TopK(), []
        for batch in batches:
            kept.append(scores(run(prepare(batch.samples))))
            metric.update(kept[-1], batch.targets)
        return np.concatenate(kept)

    return Contestant(turn, f"{note}, then session.run with default options")


def plain(setup: Setup) -> Contestant:
    """Return the usual first script: Pillow and NumPy, then the session."""
    return _in_turn(setup, partial(pillow_and_numpy, resize=setup.resize, crop=setup.crop), "Pillow and NumPy")


def serial(setup: Setup) -> Contestant:
    """Return a plain loop with our preprocess function, which shows the gain of the pipeline alone."""
    return _in_turn(setup, setup.prepare(), "our preprocess")


def _loader(setup: Setup) -> Any:
    """Return torch's DataLoader with torchvision's transforms.

    Its workers are kept between turns, so that their start is not timed, and are forked, the fastest way to start them.
    """
    from torch.utils.data import DataLoader

    from utils.export.networks.torchvision_models import import_torchvision

    torchvision = import_torchvision()
    t = torchvision.transforms
    steps = [t.Resize(setup.resize), t.CenterCrop(setup.crop), t.ToTensor(), t.Normalize(MEAN.tolist(), STD.tolist())]
    dataset = torchvision.datasets.ImageFolder(str(setup.images), t.Compose(steps))
    workers = {"num_workers": usable_cores(), "persistent_workers": True, "multiprocessing_context": "fork"}
    return DataLoader(dataset, setup.batch_size, **workers)


def dataloader(setup: Setup) -> Contestant:
    """Return torch's DataLoader before ONNX Runtime."""
    loader, run = _loader(setup), _session(setup)
    note = f"DataLoader, {usable_cores()} workers, torchvision transforms, then session.run with default options"
    return Contestant(lambda: np.concatenate([run(images.numpy()) for images, _ in loader]), note)


def torch_eager(setup: Setup) -> Contestant:
    """Return the torchvision model in torch, in the faster of its two memory formats, with the DataLoader."""
    if not setup.computes:
        raise ConfigError("no-compute is the same as dataloader")
    import torch

    from utils.export.networks.torchvision_models import RANDOM, build

    model, _, _ = build(setup.model, RANDOM)
    kind = _faster_format(model, torch.zeros((setup.batch_size, 3, setup.crop, setup.crop)))
    model, loader = model.to(memory_format=kind), _loader(setup)

    @torch.inference_mode()
    def turn() -> Array:
        return np.concatenate([model(images.to(memory_format=kind)).numpy() for images, _ in loader])

    return Contestant(turn, f"DataLoader, {usable_cores()} workers, torch eager, {str(kind).removeprefix('torch.')}")


def _faster_format(model: Any, example: Any) -> Any:
    """Return the memory format in which the model is faster: best of three, in turns; torch is slow to warm up."""
    import torch

    formats = (torch.contiguous_format, torch.channels_last)
    best = dict.fromkeys(formats, float("inf"))
    for kind in formats * 3:
        model, example = model.to(memory_format=kind), example.to(memory_format=kind)
        with torch.inference_mode():
            start = time.perf_counter()
            model(example)
            best[kind] = min(best[kind], time.perf_counter() - start)
    return min(formats, key=best.__getitem__)


def openvino(setup: Setup) -> Contestant:
    """Return OpenVINO's AsyncInferQueue in float32 with OpenCV in threads."""
    import cv2

    cv2.setNumThreads(1)  # the threads are ours: one per image
    paths = [[str(path) for path in batch.samples] for batch in setup.batches()]
    reader = f"OpenCV {cv2.__version__}, {usable_cores()} threads"
    if setup.computes:
        return _openvino(setup, paths, reader)
    return Contestant(lambda: np.concatenate([_sampled(array) for array in _read_ahead(paths, setup)]), reader)


def _openvino(setup: Setup, paths: list[list[str]], reader: str) -> Contestant:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(setup.ckpt)
    if all(len(batch) == setup.batch_size for batch in paths):
        model.reshape([setup.batch_size, 3, setup.crop, setup.crop])  # static shapes are its fast path
    hints = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "f32"}
    queue = ov.AsyncInferQueue(core.compile_model(model, "CPU", hints))

    def done(request: Any, place: tuple[int, list[Any]]) -> None:
        place[1][place[0]] = request.get_output_tensor(0).data.copy()

    def turn() -> Array:
        kept: list[Any] = [None] * len(paths)
        for index, array in enumerate(_read_ahead(paths, setup)):
            kept[index] = array  # a shared input must live until the request is done
            queue.start_async({0: array}, (index, kept), share_inputs=True)
        queue.wait_all()
        return np.concatenate(kept)

    queue.set_callback(done)
    return Contestant(turn, f"{reader}, AsyncInferQueue of {len(queue)}, OpenVINO {ov.__version__.split('-')[0]} f32")


def _read_ahead(paths: Sequence[Sequence[str]], setup: Setup) -> Iterator[Array]:
    """Yield the batches in order, two ahead of the consumer; images are read by one thread per core."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(usable_cores()) as pool:
        waiting: deque[tuple[Array, list[Any]]] = deque()
        for batch in paths:
            array = np.empty((len(batch), 3, setup.crop, setup.crop), np.float32)
            read = [pool.submit(opencv_into, path, out, setup.resize) for path, out in zip(batch, array, strict=True)]
            waiting.append((array, read))
            if len(waiting) > usable_cores():
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())


def _finished(array: Array, read: list[Any]) -> Array:
    for future in read:
        future.result()
    return array


Maker = Callable[[Setup], Contestant]

PEERS: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "ours": (ours, ()),
    "ours cpu": (ours_cpu, ()),
    "ours reduced": (ours_reduced, ()),
    "plain loop": (plain, ()),
    "serial": (serial, ()),
    "dataloader": (dataloader, ("torch", "torchvision")),
    "openvino": (openvino, ("openvino", "cv2")),
    "torch": (torch_eager, ("torch", "torchvision")),
    "limit": (limit, ()),
    "limit cpu": (limit_cpu, ()),
    "processes": (processes, ()),
    "int8": (ours_int8, ()),
    "engine float32": (engine_onnxruntime, ()),
    "engine int8": (engine_int8, ()),
}
"""Name of a contestant, its maker, and the packages it needs beyond ours."""

INSTALL = {
    "torch": '".[torch]"',
    "torchvision": '".[torch]"',
    "openvino": "openvino",
    "cv2": "opencv-python-headless",
}
"""Argument of pip for a missing package."""


def quiet() -> None:
    """Suppress output of libraries (telemetry, progress)."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # marks a module as missing
    sys.stdout = sys.stderr
