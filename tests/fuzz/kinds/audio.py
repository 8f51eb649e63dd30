"""Audio: changed bytes, wrong headers, unsupported formats, and lists with arbitrary paths."""

from __future__ import annotations

import io
import os
import random
import re
import struct
from pathlib import Path

import numpy as np

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.kept_files import with_files
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.json_of import damaged_json, same_json
from tests.fuzz.makers.values_of import odd_value
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    "numpy",
    "onnx",
    "onnxruntime",
    "soundfile",
    "soxr",
    "engine",
    "engine.sdaa.engine",
    "utils.pipeline.cli",
    "utils.tasks.speech_recognition.task",
    "utils.tasks.voice_activity.task",
)

SPEECH = ROOT / "example" / "speech"
SOUNDS = (*sorted((SPEECH / "prompts_ctc/data/samples").glob("*.wav")), SPEECH / "silero_vad/data/samples/noise.wav")
FORMATS = {
    ".flac": ("FLAC", ("PCM_16", "PCM_24")),
    ".ogg": ("OGG", ("VORBIS", "OPUS")),
    ".mp3": ("MP3", ("MPEG_LAYER_III",)),
    ".aiff": ("AIFF", ("PCM_16", "FLOAT")),
    ".au": ("AU", ("PCM_16", "ULAW")),
    ".caf": ("CAF", ("PCM_16", "ALAC_16")),
    ".w64": ("W64", ("PCM_16",)),
    ".rf64": ("RF64", ("PCM_16",)),
    ".wav": ("WAVEX", ("IMA_ADPCM", "MS_ADPCM", "PCM_24", "DOUBLE", "ALAW", "GSM610")),
}
LOSSLESS = ((".flac", "FLAC"), (".aiff", "AIFF"), (".au", "AU"), (".caf", "CAF"), (".w64", "W64"), (".wav", "WAVEX"))
OTHERS = ("AVR", "HTK", "SVX", "MAT4", "MAT5", "MPC2K", "PAF", "PVF", "SDS", "IRCAM", "VOC", "NIST", "WVE", "XI")
"""Formats of soundfile that are not supported."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    model = rng.choice(("prompts_ctc", "silero_vad"))
    how = rng.choices((_file, _folder, _list, _same, _beside, _huge), (3, 4, 6, 2, 1.5, 0.3))[0]
    return with_files(rng, folder, how(rng, folder, model))


def _words(model: str, script: str, given: str, rng: random.Random) -> tuple[str, ...]:
    file = f"example_{script}.py" if script == "valid" else f"example_{script}_batch.py"
    target = rng.choice(("onnx", "onnx", "cpu"))
    return str(SPEECH / model / file), "--data_path", *given.split("\n"), "--target", target


def _file(rng: random.Random, folder: Path, model: str) -> Case:
    path, what = _write(rng, folder)
    return Case(_words(model, rng.choice(("single", "multi")), str(path), rng), what)


def _folder(rng: random.Random, folder: Path, model: str) -> Case:
    data = folder / "data"
    data.mkdir()
    done = [_write(rng, data)[1] for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.5:
        (data / "good.wav").write_bytes(rng.choice(SOUNDS).read_bytes())
    return Case(_words(model, "multi", str(data), rng), "; ".join(done))


def _same(rng: random.Random, folder: Path, model: str) -> Case:
    """Write a recording and an equivalent one."""
    import soundfile

    samples, rate = soundfile.read(rng.choice(SOUNDS), dtype="int16")
    data = folder / "data"
    data.mkdir()
    (data / "one.wav").write_bytes(_wav(samples, rate))
    if rng.random() < 0.4:
        extra = rng.choice((b"LIST", b"junk", b"bext", b"\x1b[31"))
        (data / "two.wav").write_bytes(_wav(samples, rate, before=((extra, rng.randbytes(rng.randint(0, 99))),)))
        what = f"with a chunk {extra!r}"
    else:
        ending, form = rng.choice(LOSSLESS)
        soundfile.write(data / f"two{ending}", samples, rate, subtype="PCM_16", format=form)
        what = f"as {form}"
    return Case(_words(model, "multi", str(data), rng), f"the same samples {what}", judge=_equal)


def _equal(outcome: Outcome) -> str | None:
    if outcome.code != 0:
        return f"two recordings with the same samples: exit code {outcome.code}: {outcome.err[-200:]}"
    said = re.findall(r"^(?:one|two)\.\w+ (.*)$", outcome.out, re.MULTILINE)
    return None if len(said) == 2 and said[0] == said[1] else f"the same samples, other answers: {said}"


def _huge(rng: random.Random, folder: Path, model: str) -> Case:
    """Declare more data than memory: a sparse file of 10 GB, or a short file with a long header."""
    path = folder / rng.choice(("long.wav", "list.jsonl", "wav.scp"))
    if path.suffix == ".wav":
        path.write_bytes(_wav(np.zeros(8, np.int16), 16000, declared=0xFFFFFFFF))
    if path.suffix == ".wav" or rng.random() < 0.9:
        os.truncate(path if path.exists() else _touch(path), 10 << 30)
    return Case(_words(model, rng.choice(("single", "multi")), str(path), rng), f"{path.name} of 10 GB, a hole")


def _beside(rng: random.Random, folder: Path, model: str) -> Case:
    """Attack the alphabet, words and language model of a recogniser."""
    given = {"--alphabet": b"-\na\nb\n", "--lexicon": (SPEECH / "prompts_ctc/words.txt").read_bytes()}
    given["--language_model"] = (SPEECH / "prompts_ctc/prompts.arpa").read_bytes()[:20_000] + b"\\end\\\n"
    flag = rng.choice(tuple(given))
    lines = given[flag].split(b"\n")
    odd = (
        b"\\" + b"9" * 5000 + b"-grams:",
        b"nan a b",
        b"1e400 a",
        b"-inf a 0",
        b"\\1-grams:",
        b"a" * 5000,
        b"\xff",
        b"",
    )
    lines[rng.randrange(len(lines))] = rng.choice(odd)
    content, what = b"\n".join(lines), f"{flag}: a line"
    if rng.random() < 0.5:
        content, what = mutated(content, rng)
    path = folder / "beside.txt"
    if rng.random() < 0.1:
        what = not_a_file_reason(rng, path)
    else:
        path.write_bytes(content)
    words = _words("prompts_ctc", "single", str(SOUNDS[0]), rng)
    return Case((*words, "--decoder", rng.choice(("beam", "greedy")), flag, str(path)), f"{flag}: {what}")


def _touch(path: Path) -> Path:
    path.touch()
    return path


# ------------------------------------------------------------------------------------------------------------ a file


def _write(rng: random.Random, folder: Path) -> tuple[Path, str]:
    """Write an invalid recording, and return its description."""
    make_one = rng.choices((_none, _lying, _floats, _coded, _foreign, _plain), (1, 4, 1, 3, 1, 2))[0]
    if make_one is _none:
        path = folder / f"none{rng.randrange(1000)}{rng.choice(('.wav', '.flac'))}"
        return path, not_a_file_reason(rng, path)
    content, ending, what = make_one(rng)
    name = odd_name(rng, ending) if rng.random() < 0.15 else f"sound{rng.randrange(1000)}{ending}"
    if rng.random() < 0.05:
        ending = rng.choice((".wav", ".flac", ".mp3", ".ogg"))
        name = f"called{rng.randrange(1000)}{ending}"
    path = folder / name
    if path.exists():
        return path, "the same name twice"
    path.write_bytes(content)
    return path, f"{name!r}: {what}"


def _none(rng: random.Random) -> tuple[bytes, str, str]:
    raise AssertionError


def _samples(rng: random.Random, most: int = 6000) -> np.ndarray:
    count = rng.choice((0, 1, 2, 160, 399, most, most))
    return np.frombuffer(rng.randbytes(2 * count), np.int16)


def _plain(rng: random.Random) -> tuple[bytes, str, str]:
    content = rng.choice(
        (b"", b"\0", b"RIFF", b"RIFF\0\0\0\0WAVE", b"fLaC", b"OggS", rng.randbytes(300), b"\xff\xfb" * 99)
    )
    if rng.random() < 0.7:
        content, what = mutated(rng.choice(SOUNDS).read_bytes()[: rng.choice((60, 3000, 99999))], rng)
        return content, ".wav", what
    return content, rng.choice(tuple(FORMATS)), f"{content[:12]!r}"


def _lying(rng: random.Random) -> tuple[bytes, str, str]:
    """A WAV with a wrong header."""
    lie = rng.choice(("rate", "channels", "bits", "code", "frame", "declared", "riff", "chunks", "fmt"))
    value = rng.choice((0, 1, 2, 3, 7, 64, 1000, 32768, 65535, 1 << 31, (1 << 32) - 1))
    samples = _samples(rng)
    if lie == "chunks":
        twice = rng.choice(((b"data", samples.tobytes()), (b"fmt ", b""), (b"junk", b""), (b"fmt ", bytes(70000))))
        where = rng.choice(("before", "behind"))
        return _wav(samples, 16000, **{where: (twice,) * rng.choice((1, 2000))}), ".wav", f"chunk {twice[0]!r} {where}"
    if lie == "fmt":
        return _wav(samples, 16000, form=rng.randbytes(rng.choice((0, 4, 15, 16, 18, 40)))), ".wav", "another fmt"
    size = {"rate": 32, "declared": 32, "riff": 32}.get(lie, 16)
    value &= (1 << size) - 1
    return _wav(samples, **{"rate": 16000, lie: value}), ".wav", f"{lie} {value}"


def _wav(
    samples: np.ndarray,
    rate: int,
    *,
    channels: int = 1,
    bits: int = 16,
    code: int = 1,
    frame: int | None = None,
    declared: int | None = None,
    riff: int | None = None,
    form: bytes | None = None,
    before: tuple[tuple[bytes, bytes], ...] = (),
    behind: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    content = samples.tobytes()
    frame = (channels * bits // 8) & 0xFFFF if frame is None else frame
    if form is None:
        form = struct.pack("<HHIIHH", code, channels, rate, (rate * frame) & 0xFFFFFFFF, frame, bits)
    body = b"".join(_chunk(*one) for one in ((b"fmt ", form), *before))
    body += b"data" + struct.pack("<I", len(content) if declared is None else declared) + content
    body += b"".join(_chunk(*one) for one in behind)
    return b"RIFF" + struct.pack("<I", 4 + len(body) if riff is None else riff) + b"WAVE" + body


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind[:4].ljust(4) + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def _floats(rng: random.Random) -> tuple[bytes, str, str]:
    width = rng.choice((32, 64))
    values = np.zeros(4000, f"<f{width // 8}")
    value = rng.choice((np.nan, np.inf, -np.inf, 1e38, -65.0, 1e-45, 1.0, 64.0))
    with np.errstate(over="ignore"):
        values[rng.choice((slice(None), slice(0, 1), slice(-1, None)))] = value
    return _wav(values, 16000, code=3, bits=width), ".wav", f"floats of {width} bits, {value}"


def _coded(rng: random.Random) -> tuple[bytes, str, str]:
    import soundfile

    ending = rng.choice(tuple(FORMATS))
    form, subtypes = FORMATS[ending]
    subtype, rate = rng.choice(subtypes), rng.choice((8000, 16000, 48000))
    samples = _samples(rng, 9000)
    if rng.random() < 0.3:
        samples = samples[: len(samples) // 2 * 2].reshape(-1, 2)
    out = io.BytesIO()
    try:
        soundfile.write(out, samples, rate, subtype=subtype, format=form)
    except (soundfile.LibsndfileError, ValueError):  # this rate, this form or these channels do not go together
        return b"", ending, f"nothing, as {form}"
    content, what = out.getvalue(), "whole"
    if rng.random() < 0.8:
        content, what = mutated(content, rng)
    return content, ending, f"{form} {subtype} {samples.shape} {rate} Hz: {what}"


def _foreign(rng: random.Random) -> tuple[bytes, str, str]:
    import soundfile

    out, form = io.BytesIO(), rng.choice(OTHERS)
    try:
        soundfile.write(out, _samples(rng), 16000, format=form)
    except (soundfile.LibsndfileError, ValueError):
        return b"", ".flac", f"nothing, as {form}"
    content = out.getvalue()
    if rng.random() < 0.5:
        content, _ = mutated(content, rng)
    return content, rng.choice(tuple(FORMATS)), form


# ------------------------------------------------------------------------------------------------------------- lists


def _list(rng: random.Random, folder: Path, model: str) -> Case:
    data = folder / "data"
    (data / "sub").mkdir(parents=True)
    names = [f"r{i}.wav" for i in range(3)]
    for name in names:
        (data / name).write_bytes(rng.choice(SOUNDS).read_bytes()[:20044])
    kind = rng.choice((_manifest, _manifest, _manifest, _scp, _scp, _librispeech, _aishell, _rttm))
    given, what = kind(rng, data, names)
    script = rng.choice(("multi", "valid", "valid"))
    words = _words(model, script, given, rng)
    if script == "valid" and rng.random() < 0.2:
        words += ("--units", rng.choice(("speaker", "file")))
    return Case(words, what, judge=lambda outcome: "a command of a list was run" if (data / "RAN").exists() else None)


def _manifest(rng: random.Random, data: Path, names: list[str]) -> tuple[str, str]:
    rows: list[dict[str, object]] = [
        {"audio_filepath": name, "text": f"the text {name}", "segments": [[0.1, 0.4]], "duration": 0.5}
        for name in names
    ]
    done = []
    for row in rows:
        if rng.random() < 0.7:
            key = rng.choice(
                ("audio_filepath", "text", "segments", "duration", "offset", "label", "speaker", "\x1b[2J")
            )
            row[key] = _attack(rng, key, data)
            done.append(f"{key}: {str(row[key])[:60]!r}")
    if rng.random() < 0.1:
        rows *= 2
    content = "\n".join(same_json(rng, row) for row in rows).encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        content, what = damaged_json(rng, content)
        done.append(what)
    name = rng.choice(("list.jsonl", "manifest.json", odd_name(rng, ".jsonl")))
    return _given(rng, data, name, content), "; ".join(done)


def _attack(rng: random.Random, key: str, data: Path) -> object:
    if key == "audio_filepath" and rng.random() < 0.7:
        (data / "pipe.wav").exists() or os.mkfifo(data / "pipe.wav")
        paths = (
            "/etc/passwd",
            "/dev/zero",
            "../../x.wav",
            "r0.wav/../r1.wav",
            "sub",
            "pipe.wav",
            "touch RAN |",
            "",
            ".",
        )
        return rng.choice((*paths, "a" * 5000 + ".wav", "a\0b.wav", "a\nb.wav", "\udcff.wav", str(data / "r0.wav")))
    if key in ("duration", "offset") and rng.random() < 0.8:
        return rng.choice(
            (-1, -1e-9, 0, 1e-30, 0.3, 1e300, 1e9, float("nan"), float("inf"), True, "0.1", 10**400, 2**63)
        )
    if key == "segments" and rng.random() < 0.7:
        return rng.choice(
            ([], [[]], [[1]], [[0.2, 0.1]], [[0, 1e308]], [[float("nan")] * 2], [{"start": 0}], [[0, 1]] * 9999)
        )
    return odd_value(rng)


def _given(rng: random.Random, data: Path, name: str, content: bytes) -> str:
    """Write a list, and return the value of --data_path: the list, its folder, or both by name."""
    path = data / name
    if rng.random() < 0.04:
        not_a_file_reason(rng, data / "none.jsonl")
        return str(data / "none.jsonl")
    path.write_bytes(content)
    return rng.choice((str(path), str(path), str(data), f"manifest={path}\naudio={data}"))


def _scp(rng: random.Random, data: Path, names: list[str]) -> tuple[str, str]:
    tables = {
        "wav.scp": [f"u{i} {name}" for i, name in enumerate(names)],
        "text": [f"u{i} the text of {i}" for i in range(3)],
        "utt2spk": [f"u{i} s{i}" for i in range(3)],
        "segments": [f"u{i} u{i} 0.0 0.{i + 2}" for i in range(3)],
    }
    lines = (
        "u0 touch RAN |", "u0 |touch RAN", "u1 sox in.wav -t wav - |", "u9", "", " ", "u0 /etc/passwd",
        "u2 ../../../x.wav",
        "u1 u1 nan 1", "u1 u1 1 0", "u1 u1 -1 -1", "u1 u1 0 1e400", "u1 u1 0", "u1 u9 0 1", "u1 u1 0 inf",
        "u0 \x1b]0;x\x07",
        "a" * 5000 + " r0.wav", "u0 " + "a" * 5000 + ".wav", "u0\tr0.wav", "u0 r0.wav ", "u0\u00a0r0.wav",
        "\ufeffu0 r0.wav",
    )  # fmt: skip
    done = []
    for name in list(tables):
        if name != "wav.scp" and rng.random() < 0.3:
            del tables[name]
            continue
        if rng.random() < 0.6:
            line = rng.choice(lines)
            tables[name].insert(rng.randint(0, 3), line)
            done.append(f"{name}: {line[:60]!r}")
        content = rng.choice(("\n", "\n", "\r\n", "\r")).join(tables[name]).encode("utf-8", "surrogatepass")
        if rng.random() < 0.2:
            content, what = mutated(content, rng)
            done.append(f"{name}: {what}")
        (data / name).write_bytes(content)
    return rng.choice((str(data), str(data / "wav.scp"))), "; ".join(done)


def _librispeech(rng: random.Random, data: Path, names: list[str]) -> tuple[str, str]:
    content = "\n".join(f"{Path(name).stem} THE TEXT" for name in [*names, "gone"]).encode()
    content, what = mutated(content, rng) if rng.random() < 0.7 else (content, "whole")
    (data / "1-2.trans.txt").write_bytes(content)
    return rng.choice((str(data), str(data / "1-2.trans.txt"))), f"LibriSpeech: {what}"


def _aishell(rng: random.Random, data: Path, names: list[str]) -> tuple[str, str]:
    for folder in ("wav/S1", "transcript"):
        (data / folder).mkdir(parents=True)
    for name in names:
        (data / name).rename(data / "wav/S1" / name)
    text = data / "transcript" / "all.txt"
    if rng.random() < 0.2:
        return str(data), f"AISHELL: {not_a_file_reason(rng, text)}"
    content, what = mutated("\n".join(f"{Path(name).stem} \u4f60 \u597d" for name in names).encode(), rng)
    text.write_bytes(content)
    return str(data), f"AISHELL: {what}"


def _rttm(rng: random.Random, data: Path, names: list[str]) -> tuple[str, str]:
    line = rng.choice(
        ("SPEAKER r0 1 nan 1", "SPEAKER", "SPEAKER r0 1 0 1e400", "SPEAKER gone 1 0 1", "SPEAKER r0 1 0 0.1")
    )
    content = "\n".join(
        [*(f"SPEAKER {Path(name).stem} 1 0.1 0.2 <NA> <NA> a <NA> <NA>" for name in names), line]
    ).encode()
    if rng.random() < 0.5:
        content, _ = mutated(content, rng)
    (data / "all.rttm").write_bytes(content)
    return f"rttm={data / 'all.rttm'}\naudio={data}", f"RTTM: {line}"
