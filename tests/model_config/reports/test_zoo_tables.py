"""Generated tables of models: every model with its stored results, the selected ones in the READMEs."""

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
from model_config.reports.zoo_tables import BEGIN, END, PAGES, SELECTED, Page, tables, with_tables, write_tables

ZOO = Page("docs/reference/zoo.md", "en")
GOOD = 'does: {en: "reads [a digit](docs/x.md)", zh: "识别"}\nweights: {en: "`ours`", zh: "自己的"}\n'


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_stored_tables_are_current(page) -> None:
    stored = (ROOT / page.name).read_text(encoding="utf-8")
    assert stored == with_tables(ROOT, page), "written by: teco site --write_docs"


def test_every_model_of_the_core_has_texts_in_both_languages() -> None:
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
    for folder in ("example", "docs/reference"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        (root / page.name).write_text(f"before\n{BEGIN}\nstale text\n{END}\nafter\n", encoding="utf-8")
    (root / "example/classification/digits" / TEXTS).write_text(GOOD, encoding="utf-8")


def test_a_name_that_is_invalid_utf8_is_escaped(tmp_path: Path) -> None:
    make(tmp_path)
    own = tmp_path / "example" / "classification" / "digits"
    own.rename(own.with_name("digits\udcff"))
    write_tables(tmp_path)
    assert "digits\\udcff" in (tmp_path / "docs/reference/zoo.md").read_text(encoding="utf-8")


def test_tables_of_a_small_zoo(tmp_path: Path) -> None:
    make(tmp_path)
    assert write_tables(tmp_path) == [tmp_path / page.name for page in PAGES]
    texts = {page.name: (tmp_path / page.name).read_text(encoding="utf-8") for page in PAGES}
    for text in texts.values():
        assert text.startswith(f"before\n{BEGIN}\n")
        assert text.endswith(f"\n{END}\nafter\n")
        assert "stale text" not in text
    assert (
        "| [digits](../../example/classification/digits/README.md) | classification | reads [a digit](../x.md) |"
        in (texts["docs/reference/zoo.md"])
    )
    assert (
        "| [digits](classification/digits/README.md) | classification | reads [a digit](../docs/x.md) |"
        in (texts["example/README.md"])
    )
    assert "识别" not in texts["docs/reference/zoo.md"]
    assert "识别 | 自己的 |" in texts["docs/reference/zoo.zh-CN.md"]
    assert "contrib/" in texts["docs/reference/zoo.md"]
    assert "contrib/" not in texts["example/README.md"]
    measured, _, rest = texts["docs/reference/zoo.md"].partition("Without stored results")
    assert "0.9900" in measured
    assert "[digits]" in measured
    assert "[resnet]" in rest
    assert "| ResNet | – |" in rest
    write_tables(tmp_path)
    assert texts == {page.name: (tmp_path / page.name).read_text(encoding="utf-8") for page in PAGES}


def test_the_readme_has_the_selected_models_with_stored_results(tmp_path: Path) -> None:
    make(tmp_path)
    write_tables(tmp_path)
    for name, does in (("README.md", "reads [a digit](docs/x.md)"), ("README.zh-CN.md", "识别")):
        text = (tmp_path / name).read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith("| [")]
        assert len(rows) == 1
        assert rows[0].startswith(f"| [digits](example/classification/digits/README.md) | classification | {does} |")


def test_the_selected_models_are_in_the_zoo() -> None:
    with_results = {model.path for model in find_models(ROOT) if model.metrics}
    assert len(set(SELECTED)) == len(SELECTED) <= 12
    assert set(SELECTED) <= with_results


def test_only_full_cases_are_shown(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "model_config").mkdir()
    (tmp_path / "model_config/full.yaml").write_text(
        "- case_name: digits_full\n  run_dir: example/classification/digits\n  run_example_valid:\n"
        "    run_file: example_valid.py\n    params: {ckpt: a.onnx, batch_size: 1, data_path: d, target: onnx,"
        " dtype: float32}\n",
        encoding="utf-8",
    )
    measured, _, rest = "\n".join(tables(tmp_path, ZOO)).partition("Without stored results")
    assert "[digits]" not in measured
    assert "[digits]" in rest


def test_models_with_the_same_texts_share_a_row(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / "example/nlp" / name
        folder.mkdir(parents=True)
        (folder / "example_valid.py").write_text("", encoding="utf-8")
        (folder / TEXTS).write_text(GOOD, encoding="utf-8")
    rows = [line for line in tables(tmp_path, ZOO) if line.startswith("| [")]
    assert rows == [
        "| [one](../../example/nlp/one/README.md), [two](../../example/nlp/two/README.md) | nlp "
        "| reads [a digit](../x.md) | `ours` |"
    ]


def test_the_shown_sample_is_the_first_or_that_of_the_file(tmp_path: Path) -> None:
    for text, number in ((GOOD, 0), (GOOD + "shown_sample: 12\n", 12)):
        (tmp_path / TEXTS).write_text(text, encoding="utf-8")
        found = read_described(tmp_path)
        assert found is not None
        assert found.shown_sample == number


def test_links_and_code_marks_are_removed() -> None:
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
        (GOOD + "shown_sample: -1\n", "shown_sample -1 is not the number of a sample"),
        (GOOD + "shown_sample: first\n", "shown_sample 'first' is not the number of a sample"),
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


def test_a_page_without_marks_is_an_error(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "README.md").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"README.md: lacks the marks"):
        write_tables(tmp_path)


def test_a_pipe_as_readme_does_not_block(tmp_path: Path) -> None:
    make(tmp_path)
    readme = tmp_path / "example/classification/digits/README.md"
    readme.unlink()
    os.mkfifo(readme)
    assert "digits" in {model.title for model in find_models(tmp_path)}
    (tmp_path / "README.md").unlink()
    os.mkfifo(tmp_path / "README.md")
    with pytest.raises(ConfigError, match=r"README.md cannot be read .*it is a pipe"):
        write_tables(tmp_path)
