"""Tests of the tables of the zoo: every model is listed with its stored figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from report_samples import make_zoo
from support import ROOT

from engine import ConfigError
from model_config.reports.described import LANGUAGES, TEXTS, read_described, unlinked
from model_config.reports.scored import find_models
from model_config.reports.zoo_tables import BEGIN, END, PAGES, tables, with_tables, write_tables

GOOD = 'does: {en: "reads [a digit](docs/x.md)", zh: "识别"}\nweights: {en: "`ours`", zh: "自己的"}\n'


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_those_that_the_command_writes(page) -> None:
    stored = (ROOT / page.name).read_text(encoding="utf-8")
    assert stored == with_tables(ROOT, page), "written by: teco site --write_docs"


def test_core_models_are_described_in_both_languages() -> None:
    core = [model for model in find_models(ROOT) if model.place == "core"]
    assert len(core) >= 40
    assert [model.path for model in core if model.texts is None] == []
    for model in core:
        assert model.texts is not None
        for texts in (model.texts.does, model.texts.weights):
            assert sorted(texts) == sorted(LANGUAGES)
            assert re.search(r"[\u4e00-\u9fff]", texts["zh"]), f"{model.path}/{TEXTS}: zh is not Chinese"


def make(root: Path) -> None:
    make_zoo(root)
    (root / "example").mkdir(exist_ok=True)
    for page in PAGES:
        (root / page.name).write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    (root / "example/classification/digits" / TEXTS).write_text(GOOD, encoding="utf-8")


def test_model_name_with_invalid_utf8(tmp_path: Path) -> None:
    make(tmp_path)
    own = tmp_path / "example" / "classification" / "digits"
    own.rename(own.with_name("digits\udcff"))
    write_tables(tmp_path)
    assert "digits\\udcff" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_custom_zoo(tmp_path: Path) -> None:
    make(tmp_path)
    assert write_tables(tmp_path) == [tmp_path / page.name for page in PAGES]
    texts = {page.name: (tmp_path / page.name).read_text(encoding="utf-8") for page in PAGES}
    for text in texts.values():
        assert text.startswith(f"before\n{BEGIN}\n")
        assert text.endswith(f"\n{END}\nafter\n")
        assert "old" not in text
    assert (
        "| [digits](example/classification/digits/README.md) | classification | reads [a digit](docs/x.md) |"
        in (texts["README.md"])
    )
    assert (
        "| [digits](classification/digits/README.md) | classification | reads [a digit](../docs/x.md) |"
        in (texts["example/README.md"])
    )
    assert "| 识别" not in texts["README.md"]
    assert "识别 | 自己的 |" not in texts["README.md"]
    assert "自己的" in texts["README.zh-CN.md"]
    assert "contrib/" in texts["README.md"]
    assert "contrib/" not in texts["example/README.md"]
    measured, _, rest = texts["README.md"].partition("Without stored figures")
    assert "0.9900" in measured
    assert "[digits]" in measured
    assert "[resnet]" in rest
    assert "| ResNet | – |" in rest
    write_tables(tmp_path)
    assert texts == {page.name: (tmp_path / page.name).read_text(encoding="utf-8") for page in PAGES}


def test_only_the_whole_case_of_a_model_is_shown(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "model_config").mkdir()
    (tmp_path / "model_config/full.yaml").write_text(
        "- case_name: digits_full\n  run_dir: example/classification/digits\n  run_example_valid:\n"
        "    run_file: example_valid.py\n    params: {ckpt: a.onnx, batch_size: 1, data_path: d, target: onnx,"
        " dtype: float32}\n",
        encoding="utf-8",
    )
    measured, _, rest = "\n".join(tables(tmp_path, PAGES[0])).partition("Without stored figures")
    assert "[digits]" not in measured
    assert "[digits]" in rest


def test_equal_descriptions_share_a_row(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / "example/nlp" / name
        folder.mkdir(parents=True)
        (folder / "example_valid.py").write_text("", encoding="utf-8")
        (folder / TEXTS).write_text(GOOD, encoding="utf-8")
    rows = [line for line in tables(tmp_path, PAGES[0]) if line.startswith("| [")]
    assert rows == [
        "| [one](example/nlp/one/README.md), [two](example/nlp/two/README.md) | nlp | reads [a digit](docs/x.md)"
        " | `ours` |"
    ]


def test_unlinked_removes_links_and_marks() -> None:
    assert unlinked("a [b](c.md) and `d`") == "a b and d"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "is not a mapping"),
        ("does: {en: a, zh: b}\n", "lacks 'weights'"),
        (GOOD + "weight: x\n", "unknown key 'weight'; did you mean 'weights'"),
        (GOOD.replace("zh:", "cn:"), "does: unknown key 'cn'"),
        (GOOD.replace('"`ours`"', "3"), "weights: en must be one line"),
        (GOOD.replace("`ours`", "a | b"), "weights: en must be one line of quoted text without '|'"),
        ("does: [\n", "cannot be read"),
    ],
)
def test_invalid_descriptions(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / TEXTS).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_described(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / TEXTS) in str(caught.value)


def test_page_without_marks_is_reported(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "README.md").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"README.md: lacks the marks"):
        write_tables(tmp_path)


def test_pipes_in_place_of_readmes_do_not_block(tmp_path: Path) -> None:
    make(tmp_path)
    readme = tmp_path / "example/classification/digits/README.md"
    readme.unlink()
    os.mkfifo(readme)
    assert "digits" in {model.title for model in find_models(tmp_path)}
    (tmp_path / "README.md").unlink()
    os.mkfifo(tmp_path / "README.md")
    with pytest.raises(ConfigError, match=r"README.md cannot be read .*it is a pipe"):
        write_tables(tmp_path)
