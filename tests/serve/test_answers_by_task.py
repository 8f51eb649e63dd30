"""A body is answered as ``example_single_batch.py`` answers the file."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from served import Served, serving
from support import DIGITS, ROOT, RunPython

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

EXAMPLE = ROOT / "example"
IMAGE = DIGITS / "data" / "val" / "7" / "0081.png"
CASES = {
    "digits": ("classification/digits", IMAGE, "image/png"),
    "digit_detector": ("detection/digit_detector", None, "image/png"),
    "digit_unet": ("segmentation/digit_unet", None, "image/png"),
    "digit_crnn": ("ocr/digit_crnn", None, "image/png"),
    "keypad_words": (
        "speech/keypad_words",
        EXAMPLE / "speech/keypad_words/data/seven/vm-delete_nohash_0.wav",
        "audio/wav",
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with serving(*CASES, "language_id", "tiny_gpt") as found:
        yield found


def file_of(folder: str, file: Path | None) -> Path:
    if file is not None:
        return file
    images = (one for ending in ("png", "jpg") for one in sorted((EXAMPLE / folder / "data").rglob(f"*.{ending}")))
    return next(images)


def of_script(run_python: RunPython, folder: str, *words: object, tmp_path: Path) -> Any:
    """Return the answers of the model's own script."""
    out = tmp_path / "script.json"
    done = run_python(EXAMPLE / folder / "example_single_batch.py", *words, "--target", "onnx", "--json", out)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())["answers"]


def without_paths(value: Any) -> Any:
    """Return an answer without the places of files, which differ."""
    if isinstance(value, dict):
        return {key: without_paths(one) for key, one in value.items() if key not in ("mask", "file", "path")}
    return [without_paths(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", CASES)
def test_files(name: str, server: Served, run_python: RunPython, tmp_path: Path) -> None:
    folder, file, kind = CASES[name]
    file = file_of(folder, file)
    kind = "image/jpeg" if file.suffix == ".jpg" else kind
    found = server.ask(f"/v2/models/{name}/answer", file.read_bytes(), content_type=kind)
    assert found.status == 200, found.body
    assert set(found.json["timing"]) == {"queue_s", "prepare_s", "infer_s", "decode_s", "total_s"}
    script = of_script(run_python, folder, "--data_path", file, tmp_path=tmp_path)
    answers = [without_paths(one["answer"]) for one in found.json["answers"]]
    assert answers == [without_paths(one["answer"]) for one in script]


def test_a_sentence(server: Served, run_python: RunPython, tmp_path: Path) -> None:
    text = "Das Wetter ist heute schön,\nsagt sie."
    found = server.ask("/v2/models/language_id/answer", text.encode(), content_type="text/plain; charset=utf-8")
    script = of_script(run_python, "nlp/language_id", "--text", text, tmp_path=tmp_path)
    assert [one["answer"] for one in found.json["answers"]] == [one["answer"] for one in script]


def test_a_table_has_an_answer_per_row(server: Served) -> None:
    rows = b"text\nBonjour tout le monde\nGood morning everyone\n"
    found = server.ask("/v2/models/language_id/answer", rows, content_type="text/csv").json["answers"]
    single = [
        server.ask("/v2/models/language_id/answer", line, content_type="text/plain").json["answers"][0]["answer"]
        for line in ("Bonjour tout le monde", "Good morning everyone")
    ]
    assert [one["answer"] for one in found] == single


def test_a_rendered_answer(server: Served) -> None:
    found = server.ask("/v2/models/digits/answer?rendering=true", IMAGE.read_bytes(), content_type="image/png").json
    drawn = found["answers"][0]["rendering"]
    assert drawn["media_type"].startswith("image/")
    with Image.open(io.BytesIO(base64.b64decode(drawn["base64"]))) as image, Image.open(IMAGE) as original:
        assert image.height > original.height
    assert found["answers"][0]["answer"][0]["label"] == "7"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "image/png", 400),
        (b"not an image", "image/png", 400),
        (IMAGE.read_bytes()[:50], "image/png", 400),
        (b"x", "application/octet-stream", 415),
        (b"x", "application/x-www-form-urlencoded", 415),
        (b"x", "application/python-pickle", 415),
        (b"x", "", 415),
    ],
)
def test_bodies_that_cannot_be_answered(server: Served, body: bytes, kind: str, status: int) -> None:
    found = server.ask("/v2/models/digits/answer", body, content_type=kind)
    assert found.status == status
    assert "\n" not in found.json["error"]
    assert "teco_serve" not in found.json["error"]


def test_texts_that_cannot_be_answered(server: Served) -> None:
    for body in (b" \n", b"\xff\xfe"):
        found = server.ask("/v2/models/language_id/answer", body, content_type="text/plain")
        assert (found.status, "\n" in found.json["error"]) == (400, False)


def test_a_file_without_a_task() -> None:
    with serving(f"raw={DIGITS / 'digits_dyn.onnx'}") as server:
        found = server.ask("/v2/models/raw/answer", IMAGE.read_bytes(), content_type="image/png")
        assert found.status == 400


def test_an_image_that_is_too_large_when_it_is_decoded() -> None:
    content = io.BytesIO()
    Image.new("L", (4000, 4000)).save(content, "PNG")
    assert len(content.getvalue()) < 100_000
    with serving("digits", "--max_pixels", "1000000") as server:
        found = server.ask("/v2/models/digits/answer", content.getvalue(), content_type="image/png")
        assert (found.status, "pixels" in found.json["error"]) == (400, True)
        assert server.ask("/v2/models/digits/answer", IMAGE.read_bytes(), content_type="image/png").status == 200


def test_too_many_samples() -> None:
    rows = "text\n" + "hello there\n" * 5
    with serving("language_id", "--max_samples", "4") as server:
        found = server.ask("/v2/models/language_id/answer", rows, content_type="text/csv")
        assert (found.status, "--max_samples" in found.json["error"]) == (400, True)
        fewer = server.ask("/v2/models/language_id/answer", "text\n" + "hello there\n" * 4, content_type="text/csv")
        assert len(fewer.json["answers"]) == 4
