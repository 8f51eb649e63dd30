"""Recognise speech in a stream: raw 16-bit samples from standard input, or a WAV read in small pieces.

arecord -q -f S16_LE -r 8000 -t raw | python stream.py
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
from utils.preprocess.audio.reading import read_sound
from utils.tasks.speech_recognition.stream import CHUNK, WordStream
from utils.tasks.speech_recognition.task import SPEECH_RECOGNITION

HERE = Path(__file__).resolve().parent


def pieces(file: Path | None, size: int) -> Iterator[Array]:
    """Yield blocks of ``size`` float32 samples from a file or from standard input."""
    if file is not None:
        samples = read_sound(file).samples
        yield from (samples[start : start + size] for start in range(0, len(samples), size))
        return
    left = b""
    while content := sys.stdin.buffer.read1(2 * size):
        content, left = left + content, b""
        if len(content) % 2:
            content, left = content[:-1], content[-1:]
        yield np.frombuffer(content, "<i2").astype(np.float32) / 32768


def main() -> int:
    """Print each word as soon as it is final, and at the end the time per chunk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("file", type=Path, nargs="?", help="a recording (default: standard input)")
    parser.add_argument("--ckpt", type=Path, default=HERE / "prompts_ctc_dyn.onnx")
    parser.add_argument("--target", default="onnx")
    parser.add_argument("--rate", type=int, help="samples per second (default: the file's, or the model's)")
    parser.add_argument("--piece", type=int, default=400, help="samples taken at a time")
    parser.add_argument(
        "--chunk", type=float, default=CHUNK, help="seconds recognised at a time (default: %(default)s)"
    )
    args = parser.parse_args()
    if args.piece < 1 or (args.rate is not None and args.rate < 1):
        raise ConfigError("--piece and --rate must be at least 1")
    rate = args.rate or (read_sound(args.file).rate if args.file else None)
    options = argparse.Namespace(
        **{flag.key: flag.default for flag in SPEECH_RECOGNITION.flags}, script="single", batch_size=1
    )
    spec = EngineSpec(ckpt=args.ckpt, batch_size=1, dims={"frames": (306,)})
    with open_engine(args.target, spec) as engine:
        stream, taken = WordStream(engine, options, rate, args.chunk), []
        for piece in pieces(args.file, args.piece):
            start, before = time.perf_counter(), stream.chunks
            words = stream.feed(piece)
            if stream.chunks > before:
                taken.append((time.perf_counter() - start) / (stream.chunks - before))
            if words:
                print(" ".join(words), flush=True)
        if words := stream.finish():
            print(" ".join(words))
        if taken:
            middle, high = np.quantile(taken, [0.5, 0.99]) * 1e3
            print(
                f"{stream.seconds:.2f} s of sound; a chunk took {middle:.2f} ms (median), {high:.2f} ms (99 %), and is "
                f"recognised {stream.delay:.2f} s late at most"
            )
    return 0


if __name__ == "__main__":
    cli.run(main)
