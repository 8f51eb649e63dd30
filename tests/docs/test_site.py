"""The documentation site: the copy that mkdocs reads has valid links, every page has a place in it, and it builds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support import ROOT
from test_markdown_links import broken

PYTHON_TAG = "tag:yaml.org,2002:python/"


@pytest.fixture(scope="module")
def site_source() -> ModuleType:
    """Return the hook of mkdocs as a module."""
    spec = importlib.util.spec_from_file_location("site_source", ROOT / "docs" / "site_source.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def configuration() -> dict[str, Any]:
    """Return the content of mkdocs.yml; the function that it names is not called."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor(PYTHON_TAG, lambda loader, suffix, node: suffix)
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506
    return found


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    for one in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_of(one)


def titles_of(nav: Any) -> Iterator[str]:
    """Yield the titles of a navigation, in order."""
    for one in nav if isinstance(nav, list) else ():
        for title, below in one.items():
            yield title
            yield from titles_of(below)


def test_links_of_a_copy_lead_to_the_copy(tmp_path: Path, site_source: ModuleType) -> None:
    files = {
        "README.md": "[docs/how-to/use.md](docs/how-to/use.md#one) ![i](docs/i.png) [web](https://example.org/README.md)\n",
        "docs/how-to/use.md": "# One\n\n<!-- file: a.py -->\n```python\n[gone](../../a.py)\n```\n\n[r](../../README.md)"
        " [c](../../code/a.py#L1) [d](../../code) [e](../../kept) [f](../../kept/x.md)\n",
        "docs/i.png": "",
        "code/a.py": "",
        "kept/README.md": "# Kept\n\n- a\n  - [b](../code/a.py)\n\n| a |\n|---|\n| `b\\|c` \\| d |\n",
        "kept/x.md": "[up](README.md) [nowhere](gone.md)\n",
        "kept/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    out = tmp_path / "out"
    found = site_source.stage(tmp_path / "root", out)
    assert sorted(found) == sorted({*files, "code"} - {"kept/unused.py"})
    index, use = (out / "index.md").read_text(), (out / "how-to/use.md").read_text()
    assert index == "[One](how-to/use.md#one) ![i](i.png) [web](https://example.org/README.md)\n"
    assert use.startswith('# One\n\n```python title="a.py"\n[gone](../../a.py)\n```\n\n[r](../index.md) ')
    assert "[c](../files/code/a_py.txt) [d](../files/code/README.md) [e](../files/kept/README.md)" in use
    assert (out / "files/code/README.md").read_text() == "# code\n\n- [a.py](a_py.txt)\n"
    assert (out / "files/kept/README.md").read_text() == (
        "# Kept\n\n- a\n    - [b](../code/a_py.txt)\n\n| a |\n|---|\n| `b|c` \\| d |\n"
    )
    assert (out / "files/kept/x.md").read_text() == "[up](README.md) [nowhere](gone.md)\n"


def test_links_of_the_copy_of_this_repository_have_targets(tmp_path: Path, site_source: ModuleType) -> None:
    site_source.stage(ROOT, tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    assert len(pages) > 100
    wrong = [f"{page.relative_to(tmp_path)}: {why}" for page in pages for why in broken(page)]
    assert wrong == []


def test_every_page_has_a_place_in_the_navigation(tmp_path: Path, site_source: ModuleType) -> None:
    listed = list(pages_of(configuration()["nav"]))
    site_source.stage(ROOT, tmp_path)
    assert [page for page in listed if not (tmp_path / page).is_file()] == []
    assert sorted(set(listed)) == sorted(listed)
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page.replace(".zh-CN", "") for page in docs} - set(listed) == set()


def test_the_navigation_is_translated() -> None:
    i18n = next(one["i18n"] for one in configuration()["plugins"] if isinstance(one, dict) and "i18n" in one)
    chinese = next(one["nav_translations"] for one in i18n["languages"] if one["locale"] == "zh")
    same = {"OCR", "Python", "contrib/", "tecoexec"}
    assert set(titles_of(configuration()["nav"])) - same == set(chinese)


@pytest.mark.long
@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    for name in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    api = (tmp_path / "site/reference/api/index.html").read_text(encoding="utf-8")
    assert ":::" not in api
    for name in (
        "toolkit.api.evaluate",
        "engine.base.Engine",
        "utils.tasks.base.Task",
        "utils.metrics.base.Metric.update",
    ):
        assert f'id="{name}"' in api, name
    start = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert re.search(r'href="how-to/models/(index.html)?#the-zoo-from-one-command"', start)
