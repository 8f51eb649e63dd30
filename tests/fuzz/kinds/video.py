"""Clips: changed bytes, no frames, odd sizes and times, other codecs and containers, and what is not a video."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.names import NAMES, not_a_file_reason

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "PIL.ImageDraw", "engine", "engine.sdaa.engine"),
    *("utils.pipeline.cli", "utils.draw", "utils.tasks.classification.task", "utils.tasks.detection.task"),
)

FOLDERS = tuple(ROOT / "example" / name for name in ("classification/digits", "detection/digit_detector"))

CODECS = {
    ".mp4": (("libx264", "yuv420p"), ("libx264", "yuv444p"), ("mpeg4", "yuv420p"), ("mjpeg", "yuvj420p")),
    ".mov": (("libx264", "yuv420p"), ("prores_ks", "yuv422p10le"), ("png", "rgb24")),
    ".mkv": (("libx264", "yuv420p"), ("ffv1", "bgr0"), ("libvpx-vp9", "yuv420p"), ("rawvideo", "gray")),
    ".webm": (("libvpx", "yuv420p"), ("libvpx-vp9", "yuv420p")),
    ".avi": (("mpeg4", "yuv420p"), ("mjpeg", "yuvj420p"), ("rawvideo", "bgr24")),
    ".ts": (("libx264", "yuv420p"), ("mpeg2video", "yuv420p")),
    ".h264": (("libx264", "yuv420p"),),
    ".mjpeg": (("mjpeg", "yuvj420p"),),
    ".flv": (("flv1", "yuv420p"),),
    ".y4m": (("rawvideo", "yuv420p"),),
}
"""Codecs and formats of pixels by the ending of a clip; a build of FFmpeg that lacks one writes no frames."""

SIZES = ((32, 32), (64, 48), (33, 31), (2, 2), (1, 1), (160, 16), (16, 200), (97, 64))
FRAMES = ("0", "2", ":3", "1:", "::2", "5:2", "-1", ":", "a:b", "999999999999", "3:4:0", "0:1:1:1", "1.5", "")
"""Values of ``--frames``, valid and invalid."""

EMPTY = ("no bytes", "zeros", "a text", "an image", "sound only", "no frames")
"""What is not a clip with frames: the command must refuse it."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Write a clip, or something in its place, and run a script of a task with images on it."""
    stem = rng.choice(NAMES)[:100] if rng.random() < 0.15 else f"clip{rng.randrange(1000)}"
    clip = folder / f"{stem}{rng.choice(list(CODECS))}"
    must_fail = rng.random() < 0.25
    if must_fail:
        what = _not_a_clip(rng, clip)
    elif rng.random() < 0.06:
        what = not_a_file_reason(rng, clip)
    else:
        what = _clip(rng, clip)
        if rng.random() < 0.5 and clip.is_file():
            content, changes = mutated(clip.read_bytes(), rng)
            clip.write_bytes(content)
            what = f"{what}: {changes}"
    script = rng.choice(("single", "multi", "multi", "multi"))
    words = [str(rng.choice(FOLDERS) / f"example_{script}_batch.py"), "--data_path", str(clip)]
    words += ["--target", rng.choice(("onnx", "onnx", "sdaa")), "--json", str(folder / "answers.json")]
    more = (["--save", str(folder / "out")], ["--batch_size", "3"], [f"--frames={rng.choice(FRAMES)}"], ["--track"])
    for flags in more:
        words += flags if rng.random() < 0.3 else []
    return Case(tuple(words), f"{clip.name!r}: {what}", functools.partial(_judge, folder, clip.name, must_fail))


def _clip(rng: random.Random, clip: Path) -> str:
    """Write a clip of a few frames, and return what it is."""
    codec, form = rng.choice(CODECS[clip.suffix])
    size, count = rng.choice(SIZES), rng.randint(1, 9)
    times, kind = _times(rng, count)
    from utils.video.packages import errors

    more = clip.with_name(f"more{clip.suffix}") if rng.random() < 0.1 else None
    try:
        _write(clip, codec, form, [size] * count, times, rng.choice((1, 25, 1000)))
        if more is not None:  # a raw stream goes on with frames of another size
            _write(more, codec, form, [(48, 40)] * 2, [0, 1], 25)
            clip.write_bytes(clip.read_bytes() + more.read_bytes())
            kind += ", another clip after it"
    except (*errors(), NotImplementedError) as error:  # FFmpeg refuses, say, an odd size: a partial file
        kind += f", {type(error).__name__} while it was written"
    if more is not None:
        more.unlink(missing_ok=True)
    return f"{count} frames of {size[0]}x{size[1]} in {codec} {form}, {kind}"


def _times(rng: random.Random, count: int) -> tuple[list[int], str]:
    """Return the times of frames, and what they are."""
    kind = rng.choice(("even times", "even times", "variable rate", "large gaps", "negative times", "equal times"))
    if kind == "variable rate":
        return sorted(rng.sample(range(count * 7), count)), kind
    if kind == "large gaps":
        return [number * rng.choice((1, 10**6)) for number in range(count)], kind
    return [0 if kind == "equal times" else number - 4 * (kind == "negative times") for number in range(count)], kind


def _write(
    clip: Path, codec: str, form: str, sizes: Sequence[tuple[int, int]], times: Sequence[int], rate: int
) -> None:
    """Write frames of random pixels; encoders have one thread, so that the same calls write the same bytes."""
    import av
    import numpy as np

    pixels = np.random.default_rng(len(sizes))
    containers = {".h264": "h264", ".mjpeg": "mjpeg", ".y4m": "yuv4mpegpipe"}
    with av.open(str(clip), "w", format=containers.get(clip.suffix), options={"fflags": "+bitexact"}) as container:
        stream: Any = container.add_stream(codec, rate=rate, options={"threads": "1", "flags": "+bitexact"})
        stream.codec_context.thread_count = 1
        stream.width, stream.height = sizes[0]
        stream.pix_fmt = form
        for (width, height), time in zip(sizes, times, strict=True):
            frame = av.VideoFrame.from_ndarray(pixels.integers(0, 256, (height, width, 3), np.uint8), format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _not_a_clip(rng: random.Random, clip: Path) -> str:
    """Write a file with the name of a clip that has no frames; return what it is."""
    import io

    what = rng.choice(EMPTY)
    if what == "sound only":
        _sound(clip.with_name("sound.mp4"))
        clip.with_name("sound.mp4").replace(clip)
    elif what == "no frames":
        _write(clip.with_name("none.mp4"), "libx264", "yuv420p", [(32, 32)], [0], 25)
        content = clip.with_name("none.mp4").read_bytes()
        clip.with_name("none.mp4").unlink()
        clip.write_bytes(content[: content.index(b"mdat") - 4])  # the header without the frames and their table
    elif what == "an image":
        from PIL import Image

        held = io.BytesIO()
        Image.new("L", (28, 28)).save(held, "ICO")
        clip.write_bytes(b"\0\0\0\0" + held.getvalue())
    else:
        clip.write_bytes({"no bytes": b"", "zeros": bytes(5000), "a text": b"eval_metric 9.9\n\x1b[31m" * 9}[what])
    return what


def _sound(file: Path) -> None:
    import av
    import numpy as np

    with av.open(str(file), "w", options={"fflags": "+bitexact"}) as container:
        stream: Any = container.add_stream("aac", rate=16000)
        frame: Any = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _judge(folder: Path, clip: str, must_fail: bool, outcome: Outcome) -> str | None:
    """Return the finding of the exit code, the written files and the answers."""
    others = {entry.name for entry in folder.iterdir()} - {clip, "out", "answers.json"}
    if others:
        return f"wrote {sorted(others)[0]!r}, which was not requested"
    errors = [line for line in outcome.err.splitlines() if re.match(r"(\w+\.py: )?error: ", line)]
    if outcome.code == 2 and len(errors) != 1:
        return f"{len(errors)} error lines instead of one"
    if must_fail:
        return None if outcome.code else "answered a file without frames"
    written = folder / "answers.json"
    if not written.is_file():
        return "exit code 0 without the JSON that was asked for" if outcome.code == 0 else None
    found = json.loads(written.read_text(encoding="utf-8"))
    if outcome.code == 0 and (found["failures"] or not found["answers"]):
        return f"exit code 0 with {len(found['answers'])} answers and {len(found['failures'])} failures"
    names = [entry["name"] for entry in (*found["answers"], *found["failures"])]
    if len(set(names)) != len(names):
        return f"a frame has two results: {sorted(names)}"
    video = found.get("video", {}).get("written")
    return f"{video} was reported as written and is missing" if video and not Path(video).is_file() else None
