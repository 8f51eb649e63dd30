"""Saved engines: changed bytes, and invalid manifests with valid hashes."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.values_of import mutated_json
from tests.fuzz.names import not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "PIL.Image", "engine", "engine.sdaa.engine", "engine.sdaa.saved"),
    *("utils.pipeline.cli", "utils.tasks.classification.task", "tecoexec.cli"),
)

FOLDER = ROOT / "example" / "classification" / "digits"
SCRIPT = str(FOLDER / "example_single_batch.py")
ANSWER = "0081.png  7  "
"""Start of the expected result line of the model."""


@cache
def _engine(dtype: str) -> bytes:
    """Return the saved engine of the digits model, made once in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(shutil.copy(FOLDER / "digits_dyn.onnx", folder)).with_name("m.onnx")
        shutil.copy(FOLDER / "digits_dyn.onnx", model)
        words = ["-m", "tecoexec.save_engine", "--onnx", str(model), "--input_shapes", "4*3*32*32"]
        words += ["--onnx_dtype", dtype, "-pp", "default_pass.py"]
        subprocess.run([sys.executable, *words], check=True, cwd=ROOT, capture_output=True)
        return model.with_suffix(".tecoengine").read_bytes()


def _parts(content: bytes) -> tuple[bytes, bytes]:
    """Return manifest and model."""
    header, _, rest = content.partition(b"\n")
    size = int(header.split()[2])
    return rest[:size], rest[size:]


def _whole(manifest: bytes, model: bytes, version: object = 2) -> bytes:
    digest = hashlib.sha256(manifest).hexdigest()
    return f"tecoengine {version} {len(manifest)} {digest}\n".encode() + manifest + model


def make(rng: random.Random, folder: Path, number: int) -> Case:
    dtype = rng.choice(("float16", "float16", "float32"))
    content, harmless, what = _mutation(rng, _engine(dtype))
    beside = rng.random() < 0.3
    name = odd_name(rng, ".tecoengine") if rng.random() < 0.15 and not beside else "m.tecoengine"
    if rng.random() < 0.08:
        what, harmless = not_a_file_reason(rng, folder / name), True
    else:
        (folder / name).write_bytes(content)
    if beside:
        shutil.copy(FOLDER / "digits_dyn.onnx", folder / "m.onnx")
        words: tuple[str, ...] = (SCRIPT, "--ckpt", "m.onnx", "--target", "sdaa", "--dtype", dtype)
        words += ("--batch_size", "4")
    elif rng.random() < 0.5:
        words = (SCRIPT, f"--ckpt=./{name}", "--target", "sdaa", "--dtype", dtype)
    else:
        words = ("-m", "tecoexec", f"--loadEngine=./{name}", "--iterations", "1", "--warmUp", "0")
        words += rng.choice(((), ("--simulateOnly",), ("--json", "out.json")))

    def judge(outcome: Outcome) -> str | None:
        if beside and harmless and outcome.code != 0:
            return f"the model beside a damaged engine is refused, exit code {outcome.code}"
        answers = words[0] == SCRIPT and outcome.code == 0 and harmless
        return f"another answer: {outcome.out[-200:]!r}" if answers and ANSWER not in outcome.out else None

    return Case(words, f"{what} ({'beside its model' if beside else 'by itself'})", judge)


def _mutation(rng: random.Random, content: bytes) -> tuple[bytes, bool, str]:
    """Return a changed saved engine, whether the hashes detect it, and the change."""
    manifest, model = _parts(content)
    how = rng.choice(("bytes", "header", "manifest", "manifest", "manifest", "manifest", "manifest bytes", "model"))
    if how == "bytes":
        changed, what = mutated(content, rng)
        return changed, True, f"bytes: {what}"
    if how == "header":
        return *_header(rng, manifest, model), "header"
    if how == "manifest bytes":
        changed, what = mutated(manifest, rng, 2)
        return _whole(changed, model), False, f"bytes of the manifest, hashed again: {what}"
    data = json.loads(manifest)
    if how == "model":
        model, what = rng.choice((mutated(model, rng), (b"", "no model"), _other_model(rng)))
        data |= {"model_bytes": len(model), "model_sha256": hashlib.sha256(model).hexdigest()}
        return _whole(json.dumps(data).encode() + b"\n", model), False, f"the model, hashed again: {what}"
    if rng.random() < 0.4:  # as the manifest's own parts are small, they are seldom met otherwise
        key = rng.choice([key for key in data if key not in ("work", "metadata", "origin")])
        text, what = mutated_json({key: data[key]}, rng)
        text = json.dumps(data | {key: "@"}).replace(json.dumps({key: "@"})[1:-1], text.strip()[1:-1] or '"":0', 1)
    else:
        text, what = mutated_json(data, rng, 3)
    return _whole(text.encode("utf-8", "surrogatepass") + b"\n", model), False, f"manifest, hashed again: {what}"


def _header(rng: random.Random, manifest: bytes, model: bytes) -> tuple[bytes, bool]:
    digest = hashlib.sha256(manifest).hexdigest()
    size: object = rng.choice((len(manifest), 0, -1, 2**26, 2**26 + 1, 999_999_999, 10**12, len(manifest) + 1, "1e3"))
    version = rng.choice((2, 1, 3, 0, -2, 999_999, 10**30, "", "two", "2.0"))
    head = rng.choice((b"tecoengine", b"TECOENGINE", b"\xef\xbb\xbftecoengine", b"", b"tecoengine "))
    end = rng.choice((b"\n", b"\r\n", b"", b"\0\n"))
    return head + f" {version} {size} {digest}".encode() + end + manifest + model, True


def _other_model(rng: random.Random) -> tuple[bytes, str]:
    name = rng.choice(("example/nlp/language_id/language_id_dyn.onnx", "example/classification/digits/digits.onnx"))
    return (ROOT / name).read_bytes(), f"{name} in its place"
