"""Text recognition: characters, blanks and layouts of outputs; the digit reader on its held-out lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import options
from PIL import Image
from support import ROOT

from engine import ConfigError, DataError, EngineSpec, InputError, ModelError, TensorSpec, open_engine
from utils.pipeline import answers, valid
from utils.postprocess.text.ctc import Text
from utils.tasks.model import Model
from utils.tasks.text_recognition.task import TextRecognition, charset_of, form_of, steps_of

FOLDER = ROOT / "example" / "ocr" / "digit_crnn"
RNG = np.random.default_rng(0)


def model(shape: tuple[int | None, ...] = (None, 3, 48, None), axis: int | None = 0, **metadata: str) -> Model:
    inputs = (TensorSpec("x", np.dtype(np.float32), shape),)
    outputs = (TensorSpec("y", np.dtype(np.float32), (None, None, None), axis),)
    return Model(Path("some.onnx"), inputs, outputs, metadata=metadata)


def given(**flags: Any) -> Any:
    return options(TextRecognition, **flags)


def task(of: Model | None = None, **flags: Any) -> TextRecognition:
    """A task with these flags, bound to a model."""
    return TextRecognition(given(**flags)).bind(of or model())


def path(*classes: int, of: int = 4) -> np.ndarray:
    return np.eye(of, dtype=np.float32)[list(classes)]


def test_pp_ocr_characters_follow_the_blank_and_end_with_a_space():
    of = model(character="a\nb\n")
    assert charset_of(of, given(), 4).characters == ("a", "b", " ")
    assert charset_of(of, given(), 3).characters == ("a", "b")
    (read,) = task(of).decode(path(1, 0, 1, 3, 2)[None], [None])
    assert read.text == "aa b"


def test_a_vocabulary_may_contain_the_blank_and_a_file_takes_precedence(tmp_path):
    of = model(vocabulary=json.dumps(["a", "b", "<blank>"]), text_recognition=json.dumps({"blank": -1}))
    assert charset_of(of, given(), 3) == (("a", "b"), -1)
    (read,) = task(of).decode(path(0, 2, 0, 1, of=3)[None], [None])
    assert read.text == "aab"
    file = tmp_path / "dict.txt"
    file.write_text("x\r\ny\r\n", encoding="utf-8-sig", newline="")
    assert charset_of(of, given(charset=str(file), blank=0), 3) == (("x", "y"), 0)


def test_steps_may_come_first():
    steps = RNG.random((7, 2, 5)).astype(np.float32)
    for axis, count in ((1, 2), (None, 2), (0, 2)):  # what the graph says, or else the batch's size
        assert steps_of(steps, count, model(axis=axis)).shape == (2, 7, 5)
    assert steps_of([steps], 7, model()).shape == (7, 2, 5)
    with pytest.raises(InputError, match=r"\(7, 2, 5\).* 3 lines"):
        steps_of(steps, 3, model())
    with pytest.raises(InputError, match=r"shape \(7, 2\)"):
        steps_of(steps[..., 0], 7, model())


def test_the_input_decides_on_size_and_channels_before_notes_do():
    note = json.dumps({"channel_order": "RGB", "height": 40, "min_width": 8, "multiple": 8, "max_width": 100})
    form = form_of(model((None, 3, None, None), text_recognition=note), given())
    assert (form.height, form.least, form.most, form.multiple, form.channel_order) == (40, 8, 100, 8, "RGB")
    fixed = form_of(model((None, 1, 32, 100), text_recognition=note), given())
    assert (fixed.height, fixed.least, fixed.most, fixed.channel_order) == (32, 100, 100, "GRAY")
    asked = form_of(model((None, 3, None, None)), given(input_size=[24, 90]))
    assert (asked.height, asked.least, asked.most) == (24, 90, 90)


def test_lines_of_other_widths_become_a_list_and_images_are_accepted():
    made = task().prepare([Image.new("RGB", (100, 10)), Image.new("L", (400, 20))])
    assert [one.shape for one in made.arrays[0]] == [(3, 48, 480), (3, 48, 960)]
    assert made.contexts is not None
    assert [one.width for one in made.contexts] == [480, 960]


@pytest.mark.parametrize(
    ("metadata", "flags", "kind", "said"),
    [
        ({}, {}, ConfigError, "--charset FILE"),
        ({"character": "a"}, {}, ConfigError, "has 1 characters and some.onnx 4 classes"),
        ({"character": "a\nb\nc"}, {"blank": 9}, ConfigError, "--blank 9"),
        ({"character": "a\nb\nc"}, {"charset": "none.txt"}, DataError, "--charset none.txt cannot be read"),
        ({"character": "a\nb\nc", "text_recognition": '{"blank": "x"}'}, {}, ModelError, "blank 'x' must be"),
        (
            {"character": "a\nb\nc"},
            {"decoder": "beam", "lexicon": "none.txt"},
            DataError,
            "--lexicon none.txt cannot be read",
        ),
    ],
)
def test_errors_are_one_line(metadata, flags, kind, said):
    with pytest.raises(kind) as error:
        task(model(**metadata), **flags).decode(path(1, 2)[None], [None])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_invalid_flags():
    for flags, said in (
        ({"lexicon": "a"}, "--lexicon needs --decoder beam"),
        ({"beam_width": 0}, "--beam_width 0"),
        ({"input_size": [1, 2, 3]}, "--input_size"),
        ({"max_width": 0}, "--max_width 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            task(**flags).check()
    with pytest.raises(ConfigError, match="--channel_order GRAY"):
        form_of(model(), given(channel_order="GRAY"))
    with pytest.raises(ModelError, match="3 x H x W"):
        form_of(model((None, 3, 48)), given())


def test_lexicon_corrects_and_reports_unsupported_words(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("ab\nabc\n\nxyz\n")
    outputs = np.full((1, 3, 4), 0.05, np.float32)
    outputs[0, [0, 1, 2], [1, 3, 3]] = 0.85
    of = model(character="a\nb\nc")
    assert task(of).decode(outputs, [None])[0].text == "ac"
    with pytest.warns(UserWarning, match=r"1 of its words .*'xyz'"):
        (read,) = task(of, decoder="beam", lexicon=str(file)).decode(outputs, [None])
    assert read.text in ("ab", "abc")


def test_hints_name_characters_that_are_missing_and_the_likely_blank():
    of = model(character="a\nb\nc")
    diagnostics = task(of).diagnostics()
    outputs = np.stack([path(3, 1, 3, 3, 2, 3)] * 20)
    diagnostics.see(outputs, [None] * 20, ["ab"] * 19 + ["aé"])
    first, second = diagnostics.hints()
    assert first.startswith("1 of 20 texts have characters that the model lacks (é)")
    assert second.endswith("try --blank -1")


def test_reference_answers_and_agreement(tmp_path):
    reader = task()
    dataset = reader.load({"data": FOLDER / "data" / "val"})
    file = tmp_path / "source.txt"
    file.write_text("0001.jpg\t12\nelsewhere/0002.jpg\t\n")
    found = reader.reference_answers(file, dataset)
    assert found[:3] == [None, Text("12", 1.0), Text("", 1.0)]
    assert reader.agreement(Text("abcd", 1), Text("abce", 1)) == 0.75
    assert reader.agreement(Text("", 1), Text("", 1)) == 1
    file.write_text("0001.jpg 12\n")
    with pytest.raises(DataError, match=r"source\.txt:1: .* has no tab"):
        reader.reference_answers(file, dataset)


def test_a_text_of_control_characters_is_shown_harmless(tmp_path):
    image = FOLDER / "data" / "samples" / "0500.jpg"
    shown = task().show(image, Text("a\x1b[31mb\n", 0.5))
    assert shown.text == "ab  0.50"
    assert shown.save is not None
    with Image.open(shown.save(tmp_path)) as drawn, Image.open(image) as line:
        assert drawn.height > line.height
    assert task().show(image, Text("", 0.0)).text == "(nothing read)  0.00"


def run(tmp_path: Path, *words: str, script: str = "valid", data: str = "data/val") -> Any:
    argv = [*words, "--json", str(tmp_path / "result.json")]
    where: dict[str, Any] = {"ckpt": FOLDER / "digit_crnn_dyn.onnx", "data_path": FOLDER / data, "batch_size": 32}
    if script == "valid":
        assert valid.main(None, TextRecognition, argv=argv, **where) == 0
    else:
        assert answers.main(None, TextRecognition, script, argv=argv, **where) == 0
    return json.loads((tmp_path / "result.json").read_text())


def test_the_digit_reader_reads_nineteen_of_twenty_lines(tmp_path):
    found = run(tmp_path, "--target", "onnx", "--save_predictions", str(tmp_path / "read.txt"))
    assert found["metric"] >= 0.95
    assert found["samples"] == 500
    rows = (tmp_path / "read.txt").read_text().splitlines()
    assert len(rows) == 500
    assert rows[0].split("\t")[0].endswith("0000.jpg")


def test_unreadable_image_is_skipped(tmp_path, capsys):
    for name in ("0000.jpg", "0001.jpg"):
        whole = (FOLDER / "data" / "val" / "images" / name).read_bytes()
        (tmp_path / name).write_bytes(whole if name == "0000.jpg" else whole[:200])
    text = (FOLDER / "data" / "val" / "rec_gt.txt").read_text().split("\n")[0].split("\t")[1]
    (tmp_path / "rec_gt.txt").write_text(f"0000.jpg\t{text}\n0001.jpg\t12\n0002.jpg\t3\n")
    where: dict[str, Any] = {"ckpt": FOLDER / "digit_crnn_dyn.onnx", "data_path": tmp_path, "batch_size": 2}
    argv = ["--target", "onnx", "--json", str(tmp_path / "result.json")]
    assert valid.main(None, TextRecognition, argv=argv, **where) == 1
    found = json.loads((tmp_path / "result.json").read_text())
    assert (found["metric"], found["samples"]) == (1, 1)
    said = capsys.readouterr()
    assert "0001.jpg" in said.out + said.err
    assert "0002.jpg" in said.out + said.err


def test_drawn_answers(tmp_path):
    run(tmp_path, "--target", "onnx", "--save", str(tmp_path / "drawn"), script="multi", data="data/samples")
    assert len(list((tmp_path / "drawn").glob("*.png"))) == 8


@pytest.mark.long
@pytest.mark.slow
def test_float16_on_the_card_matches_the_baseline(tmp_path):
    baseline = run(tmp_path, "--target", "onnx")["metric"]
    card = run(tmp_path, "--target", "sdaa", "--widths", "96", "160", "256", "512")["metric"]
    assert abs(card - baseline) <= 0.004
    searched = run(tmp_path, "--target", "onnx", "--decoder", "beam", "--metric", "cer")
    assert searched["metric"] < 0.02


@pytest.mark.slow
def test_export_settings_are_found_from_reference_texts(tmp_path):
    run(tmp_path, "--target", "onnx", "--save_predictions", str(tmp_path / "own.txt"))
    proto = onnx.load(FOLDER / "digit_crnn_dyn.onnx")
    for prop in proto.metadata_props:
        if prop.key == "text_recognition":
            prop.value = json.dumps({**json.loads(prop.value), "blank": -1, "pixel_values": "0..255"})
    onnx.save(proto, tmp_path / "wrong.onnx")
    words = ["fix", tmp_path / "wrong.onnx", "--task", "text_recognition", "--data", FOLDER / "data" / "val"]
    words += ["--golden", tmp_path / "own.txt", "--samples", "60", "--out", tmp_path]
    call = "import sys; from tecoinfer_modelzoo.commands import teco; sys.exit(teco())"
    done = subprocess.run(
        [sys.executable, "-c", call, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "this explains it: --blank 0 --pixel_values -1..1" in done.stdout, done.stdout + done.stderr


def test_input_size_overrides_the_scripts_widths():
    assert task(widths=[160, 96]).open_sizes() == {"model": {(0, 3): (96, 160)}}
    assert task().open_sizes() == {}
    spec = EngineSpec(
        FOLDER / "digit_crnn_dyn.onnx", input_size=((None, None, 32, 128),), open_sizes={(0, 3): (96, 160)}
    )
    with open_engine("onnx", spec) as engine:
        assert Model.of(engine).inputs[0].shape == (None, 1, 32, 128)
