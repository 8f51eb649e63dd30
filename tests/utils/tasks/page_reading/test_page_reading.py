"""Reading pages: the constructed models of the template through the task, and PP-OCRv4 where it can be fetched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, options, written
from PIL import Image
from support import ROOT

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.fetch import FetchError, fetched
from utils.pipeline.session import described
from utils.tasks.page_reading.steps import Line
from utils.tasks.page_reading.task import PageReading

SMALL = {"det_side": 320, "det_overlap": 64, "rec_widths": [64, 128]}
FOLDER = ROOT / "example/ocr/ppocr_v4"


def read(files: dict[str, Path], pages: list[Path], target: str, **given: Any) -> list[list[Any]]:
    """Take pages through the task's functions on a target."""
    task = PageReading(options(PageReading, "valid", **given))
    sizes = task.open_sizes()
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(open_engine(target, EngineSpec(file, batch_size=4, open_sizes=sizes[name])))
            for name, file in files.items()
        }
        task.bind(described(engines))
        prepared = task.prepare(pages)
        assert prepared.contexts is not None
        task.state = task.setup(engines, None)  # type: ignore[arg-type]
        outputs = task.infer(engines, list(prepared.arrays), prepared.contexts)
        found: list[list[Any]] = task.decode(outputs, prepared.contexts)  # type: ignore[assignment]
        return found


def texts(pages: list[list[Any]]) -> list[list[str]]:
    return [[line.text for line in lines] for lines in pages]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(PageReading, tmp_path_factory.mktemp("ribbons"))


@pytest.fixture(scope="module")
def files(tiny: Path) -> dict[str, Path]:
    return {name: tiny / f"{NAME}_{name}_dyn.onnx" for name in PageReading.models}


@pytest.fixture(scope="module")
def truth(tiny: Path) -> dict[Path, list[str]]:
    rows = [line.split("\t") for line in (tiny / "data/Label.txt").read_text().splitlines()]
    return {tiny / "data" / name: [one["transcription"] for one in json.loads(text)] for name, text in rows}


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_every_page_is_read(target: str, files: dict[str, Path], truth: dict[Path, list[str]]) -> None:
    found = read(files, list(truth), target, **SMALL)
    assert texts(found) == list(truth.values())
    assert found[-1] == []  # the empty page
    assert all(line.outline.shape == (4, 2) and 0 < line.box_score <= 1 for lines in found for line in lines)


def test_a_page_larger_than_the_input(files: dict[str, Path], truth: dict[Path, list[str]], tmp_path: Path) -> None:
    """Four pages on one: lines cross the borders of tiles, and come out once."""
    pages = list(truth)[:4]
    large = Image.new("RGB", (640, 640), (20, 20, 20))
    for place, page in enumerate(pages):
        large.paste(Image.open(page), (place % 2 * 320, place // 2 * 320))
    large.save(tmp_path / "large.png")
    (found,) = texts(read(files, [tmp_path / "large.png"], "onnx", **SMALL))
    assert sorted(found) == sorted(text for page in pages for text in truth[page])
    (reduced,) = texts(read(files, [tmp_path / "large.png"], "onnx", **SMALL, det_limit=320))
    assert sorted(reduced) != sorted(found)  # bars of half the size are no lines for this detector


@pytest.mark.parametrize("degrees", [0, 5, 30, 90, 180, 270])
def test_reading_order_is_independent_of_rotation(degrees: int) -> None:
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    lines = []
    for row in (2, 0, 1, 3):
        right, top = 300.0 - 20 * row, 40.0 * row
        outline = np.array([[10, top], [right, top], [right, top + 20], [10, top + 20]])
        turned = degrees in (90, 180)  # a line begins where an upright reader would begin it: half of them are turned
        outline = outline @ turn
        lines.append(Line(str(row), 1.0, np.roll(outline, 2, axis=0) if turned else outline, 1.0, turned))
    (found,) = PageReading(options(PageReading, "valid")).decode([lines], None)
    assert [line.text for line in found] == ["0", "1", "2", "3"]


def test_invalid_page_is_skipped(tiny: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for file in (tiny / "data").iterdir():
        (data / file.name).write_bytes(file.read_bytes())
    (data / "page_1.png").write_bytes(b"no image")
    done = subprocess.run(
        [
            sys.executable,
            tiny / "example_valid.py",
            "--data_path",
            data,
            "--target",
            "onnx",
            "--json",
            tmp_path / "r.json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["samples"] == 5
    assert "page_1.png" in done.stdout + done.stderr
    assert found["metric"] == 0


def test_swapped_models_are_rejected(files: dict[str, Path], truth: dict[Path, list[str]]) -> None:
    page = list(truth)[:1]
    with pytest.raises(ModelError, match=r"tiny_det_dyn\.onnx: .*model cls .*N x 2, .*check --ckpt"):
        read({**files, "cls": files["det"]}, page, "onnx", **SMALL)
    with pytest.raises(ModelError, match=r"tiny_rec_dyn\.onnx: .*model det .*N x 1 x H x W"):
        read({**files, "det": files["rec"]}, page, "onnx", **{**SMALL, "det_side": 320})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"det_side": 100}, "--det_side 100 must be a multiple of 32"),
        ({"det_side": 0}, "--det_side 0"),
        ({"det_overlap": 481}, "--det_overlap 481 must be from 0 to 480"),
        ({"det_limit": -1}, "--det_limit -1"),
        ({"rec_widths": [0]}, r"--rec_widths \[0\]"),
        ({"det_enlarge": float("nan")}, "--det_enlarge nan"),
        ({"box_threshold": 1.5}, "--box_threshold 1.5 must be from 0 to 1"),
        ({"unclip": 0.0}, "--unclip 0.0"),
        ({"font": "/etc/passwd"}, "--font: /etc/passwd"),
    ],
)
def test_invalid_flags(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        PageReading(options(PageReading, **given)).check()


# ------------------------------------------------------------------------------------------------------------- PP-OCRv4


@pytest.fixture(scope="module")
def ppocr() -> dict[str, Path]:
    try:
        folder = fetched("ppocr_v4") / "rapidocr_onnxruntime" / "models"
    except FetchError as error:
        pytest.skip(f"PP-OCRv4 cannot be fetched: {error}")
    names = {"det": "ch_PP-OCRv4_det", "cls": "ch_ppocr_mobile_v2.0_cls", "rec": "ch_PP-OCRv4_rec"}
    return {key: folder / f"{name}_infer.onnx" for key, name in names.items()}


def pages_of(names: tuple[str, ...]) -> Iterator[tuple[Path, list[str]]]:
    for row in (FOLDER / "data/Label.txt").read_text(encoding="utf-8").splitlines():
        name, _, text = row.partition("\t")
        if Path(name).stem in names:
            yield FOLDER / "data" / name, [line["transcription"] for line in json.loads(text)]


@pytest.mark.slow
@pytest.mark.long
def test_the_card_reads_the_same_lines(ppocr: dict[str, Path]) -> None:
    """Chinese, turned, upside down, bent, and none: on the card in float16 as on the baseline."""
    pages = dict(pages_of(("chinese", "turned", "upside_down", "bent", "empty")))
    one, other = (read(ppocr, list(pages), target) for target in ("onnx", "sdaa"))
    joined = [["".join(text.split()) for text in lines] for lines in texts(one)]
    assert joined == [["".join(text.split()) for text in lines] for lines in texts(other)]
    wanted = [["".join(text.split()) for text in lines] for lines in pages.values()]
    right = sum(text in lines for lines, page in zip(joined, wanted, strict=True) for text in page)
    assert right >= 25  # of 28
    assert sum(line.turned for line in one[2]) == 7
    assert any(len(line.outline) > 4 for line in one[3])
    assert one[-1] == []


@pytest.mark.slow
@pytest.mark.parametrize("quarters", [1, 3])
def test_a_page_on_its_side_is_read_whole_and_in_order(ppocr: dict[str, Path], tmp_path: Path, quarters: int) -> None:
    """One line's direction is mistaken by the classifier at a quarter turn: it is read the other way round, too."""
    ((page, wanted),) = pages_of(("english",))
    Image.open(page).rotate(90 * quarters, expand=True).save(tmp_path / "side.png")
    ((lines),) = read(ppocr, [tmp_path / "side.png"], "onnx")
    found = ["".join(line.text.split())[:4] for line in lines]
    assert found == ["".join(text.split())[:4] for text in wanted]


@pytest.mark.slow
def test_a_very_long_line_is_read_in_pieces(ppocr: dict[str, Path], tmp_path: Path) -> None:
    from PIL import ImageDraw, ImageFont

    text = " ".join(f"word{i}" for i in range(36))
    image = Image.new("RGB", (4100, 120), "white")
    ImageDraw.Draw(image).text((20, 40), text, fill="black", font=ImageFont.load_default(size=30))
    image.save(tmp_path / "long.png")
    (((line,)),) = read(ppocr, [tmp_path / "long.png"], "onnx")
    assert line.text.count("word") == 36
    assert sum(one == other for one, other in zip(line.text.split(), text.split(), strict=False)) >= 30


@pytest.mark.slow
def test_a_scanned_page(ppocr: dict[str, Path]) -> None:
    skimage = pytest.importorskip("skimage")
    page = Path(skimage.__file__).parent / "data" / "page.png"
    ((lines),) = read(ppocr, [page], "onnx")
    wanted = ("Region-based segmentation", "Let us first determine markers of the coins and the")
    found = ["".join(line.text.split()) for line in lines]
    assert len(found) == 7
    assert sum("".join(text.split()) in found for text in wanted) == 2
    assert np.all(np.diff([line.outline[:, 1].mean() for line in lines]) > 0)
