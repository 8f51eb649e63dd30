"""Detect speech in a stream: raw 16-bit samples from standard input, or a WAV read in small pieces.

arecord -q -f S16_LE -r 16000 -t raw | python stream.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, ConfigError, EngineSpec, add_version, open_engine
from utils.pipeline import cli
from utils.postprocess.audio.speech_segments import Rules
from utils.preprocess.audio.reading import read_sound
from utils.tasks.model import Model
from utils.tasks.voice_activity.steps import Layout, Segment, VoiceStream

HERE = Path(__file__).resolve().parent


def pieces(file: Path | None, size: int) -> Iterator[Array]:
    """Yield blocks of ``size`` float32 samples from a file or from standard input."""
    if file is not None:
        sound = read_sound(file).samples
        yield from (sound[start : start + size] for start in range(0, len(sound), size))
        return
    left = b""
    while content := sys.stdin.buffer.read1(2 * size):
        content, left = left + content, b""
        if len(content) % 2:
            content, left = content[:-1], content[-1:]
        yield np.frombuffer(content, "<i2").astype(np.float32) / 32768


def said(found: list[Segment]) -> None:
    """Print segments."""
    for one in found:
        print(f"{one.start:.2f}-{one.end:.2f} s", flush=True)


def main() -> int:
    """Print each segment as soon as its end is final, and at the end the time per chunk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("file", type=Path, nargs="?", help="a recording (default: standard input)")
    parser.add_argument("--ckpt", type=Path, default=HERE / "silero_vad_dyn.onnx")
    parser.add_argument("--target", default="onnx")
    parser.add_argument("--rate", type=int, help="samples per second (default: the file's, or the model's)")
    parser.add_argument("--piece", type=int, default=512, help="samples taken at a time")
    args = parser.parse_args()
    if args.piece < 1 or (args.rate is not None and args.rate < 1):
        raise ConfigError("--piece and --rate must be at least 1")
    rate = args.rate or (read_sound(args.file).rate if args.file else None)
    with open_engine(args.target, EngineSpec(ckpt=args.ckpt, batch_size=1)) as engine:
        layout = Layout.of(Model.of(engine), argparse.Namespace(rate=16000))
        stream, taken = VoiceStream(engine, layout, Rules(layout.rate, layout.chunk), rate), []
        for piece in pieces(args.file, args.piece):
            start = time.perf_counter()
            found = stream.feed(piece)
            taken.append(time.perf_counter() - start)
            said(found)
        said(stream.finish())
        if taken:
            middle, high = np.quantile(taken, [0.5, 0.99]) * 1e3
            print(f"{stream.seconds:.2f} s of sound; a piece took {middle:.2f} ms (median), {high:.2f} ms (99 %)")
    return 0


if __name__ == "__main__":
    cli.run(main)
