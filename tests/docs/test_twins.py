"""A page in Chinese says what its page in English says: the same structure, code, tables, figures, images and links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from test_markdown_links import committed

ENDING = ".zh-CN.md"
"""Ending of the pages in Chinese."""

BLOCK = re.compile(
    r"^(?P<mark><!-- [^\n]+ -->\n)?(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
"""A code block, with the line before it that names its file."""

HOLE = "\0"
"""What stands for the code blocks of a page."""

COMMENT = re.compile(r"(?:^|[ \t]+)# .*$", re.MULTILINE)
COMMENTED = ("bash", "sh", "python", "py", "yaml", "toml")
"""Languages of blocks whose comments may be translated."""

SWITCH = re.compile(r"^\[(?:中文|English)\]\(([^)\s]+)\)", re.MULTILINE)
"""The link to the page in the other language."""

ANCHOR = re.compile(r"^<a id=\"[^\"]+\"></a>\n", re.MULTILINE)
"""What gives a heading in Chinese the fragment of the heading in English."""

SECTION = re.compile(r"^(?=#+ )", re.MULTILINE)
HEADING = re.compile(r"^#+(?= )")
TABLE = re.compile(r"(?:^ *\|.*\n?)+", re.MULTILINE)
CELLS = re.compile(r"(?<!\\)\|")
PARAGRAPH = re.compile(r"\S\s*?(?:\n\s*\n|\Z)")
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"(!?\[[^\[\]]*)?\]\(<?([^()\s<>]+)>?\)|(?:src|href)=\"([^\"]+)\"")
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAY = re.compile(rf"(\d+) ({'|'.join(MONTHS)}) (\d+)")


def twins() -> list[Path]:
    """Return the pages in Chinese of the repository."""
    return committed(f"*{ENDING}")


def english(chinese: Path) -> Path:
    """Return the path of the page in English of a page in Chinese."""
    return chinese.with_name(chinese.name.removesuffix(ENDING) + ".md")


def sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of a page, from a heading to the next one of any level, and the code blocks of each.

    A section is without the link to the other language, anchors, and the text of its code blocks.
    """
    blocks: list[str] = []

    def taken(block: re.Match[str]) -> str:
        lines = COMMENT.sub("", block["text"]) if block["language"] in COMMENTED else block["text"]
        blocks.append(f"{block['mark'] or ''}{block['language']}\n{lines}")
        return HOLE

    text = ANCHOR.sub("", SWITCH.sub("", BLOCK.sub(taken, text), count=1))
    following = iter(blocks)
    for section in SECTION.split(text):
        if section.strip():
            yield section, [next(following) for _ in range(section.count(HOLE))]


def code(text: str) -> list[str]:
    """Return what is written in code style, without line breaks."""
    return [" ".join(span.split()) for span in CODE.findall(text)]


def numbers(text: str) -> list[str]:
    """Return the numbers of a text outside of code and links; dates in words count as 2026-11-30."""
    plain = LINK.sub(r"\1]", CODE.sub("", text))
    return NUMBER.findall(DAY.sub(lambda day: f"{day[3]}-{MONTHS.index(day[2]) + 1:02}-{day[1]:0>2}", plain))


def images(text: str) -> list[str]:
    """Return the files of the images of a text."""
    return [inside or html for start, inside, html in LINK.findall(text) if html or start.startswith("!")]


def links(text: str) -> list[str]:
    """Return the targets of the links of a text; pages in Chinese count as those in English."""
    return [
        inside.replace(ENDING, ".md") for start, inside, _ in LINK.findall(text) if inside and not start.startswith("!")
    ]


def cells(section: str) -> list[list[list[str]]]:
    """Return the cells of the rows of the tables of a section."""
    tables = [table.strip().splitlines() for table in TABLE.findall(section)]
    return [[CELLS.split(row.strip())[1:-1] for row in table] for table in tables]


def shape(section: str) -> list[list[int]]:
    """Return the number of cells of each row of each table of a section."""
    return [[len(row) for row in table] for table in cells(section)]


COMPARED: dict[str, Callable[[str], list[str] | int | list[list[int]]]] = {
    "level of the heading": HEADING.findall,
    "code blocks": lambda section: section.count(HOLE),
    "paragraphs": lambda section: len(PARAGRAPH.findall(section)),
    "items of lists": lambda section: len(ITEM.findall(section)),
    "cells of the rows of tables": shape,
    "images": images,
    "links": links,
    "code in the text": lambda section: code(TABLE.sub("", section)),
    "numbers in the text": lambda section: numbers(TABLE.sub("", section)),
}
"""What two sections have in common. The order of words, and so that of the found strings, differs by language."""


def differences(chinese: str, english: str) -> Iterator[str]:
    """Yield how a page in Chinese differs from the page in English, each with the English heading."""
    theirs, ours = list(sections(english)), list(sections(chinese))
    if len(theirs) != len(ours):
        yield f"{len(ours)} sections instead of {len(theirs)}"
    for (left, left_blocks), (right, right_blocks) in zip(theirs, ours, strict=False):
        title = left.strip().splitlines()[0]
        for what, read in COMPARED.items():
            yield from _differing(f"{title}: {what}", read(left), read(right))
        for place, blocks in enumerate(zip(left_blocks, right_blocks, strict=False), 1):
            if blocks[0] != blocks[1]:
                lines = _differing(f"{title}: lines of code block {place}", *map(str.splitlines, blocks))
                yield next(lines, f"{title}: order of the lines of code block {place}")
        if shape(left) == shape(right):
            for place, pair in enumerate(zip(_flat(left), _flat(right), strict=True), 1):
                yield from _differing(f"{title}: numbers in cell {place}", *map(numbers, pair))
                yield from _differing(f"{title}: code in cell {place}", *map(code, pair))


def _flat(section: str) -> list[str]:
    """Return all cells of the tables of a section."""
    return [cell for table in cells(section) for row in table for cell in row]


def _differing(what: str, theirs: Any, ours: Any) -> Iterator[str]:
    """Yield one line if two values differ; of strings in any order, those that only one of them has."""
    words = [Counter(one) for one in (theirs, ours) if isinstance(one, list) and all(isinstance(s, str) for s in one)]
    if len(words) == 2:
        left, right = words
        if left != right:
            yield f"{what}: missing {[*(left - right).elements()]}, unexpected {[*(right - left).elements()]}"
    elif theirs != ours:
        yield f"{what}: {ours} instead of {theirs}"


def texts() -> list[tuple[str, str, str]]:
    """Return of each page in Chinese its name, its text, and the text of the page in English."""
    return [
        (str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"), english(page).read_text(encoding="utf-8"))
        for page in twins()
    ]


def test_every_page_in_chinese_says_what_the_page_in_english_says() -> None:
    assert [str(page) for page in twins() if not english(page).is_file()] == []
    assert len(texts()) > 8
    assert [f"{name}: {why}" for name, *both in texts() for why in differences(*both)] == []


def test_both_pages_link_to_each_other() -> None:
    for name, *both in texts():
        files = [Path(name).name.replace(ENDING, ".md"), Path(name).name]
        assert [SWITCH.findall(text)[:1] for text in both] == [[file] for file in files], name


def test_links_of_a_page_in_chinese_lead_to_pages_in_chinese() -> None:
    wrong = []
    for page in twins():
        text = SWITCH.sub("", page.read_text(encoding="utf-8"), count=1)
        for link in (inside for start, inside, _ in LINK.findall(text) if inside and not start.startswith("!")):
            target = page.parent / link.partition("#")[0]
            if target.suffix == ".md" and target.with_suffix(ENDING).is_file():
                wrong.append(f"{page.relative_to(ROOT)}: {link} has a page in Chinese, {target.stem}{ENDING}")
    assert wrong == []


def test_emphasis_of_a_page_in_chinese_is_closed() -> None:
    """Two asterisks between a punctuation mark and a word do not end emphasis on GitHub."""
    for name, text, _ in texts():
        for words, after in re.findall(r"\*\*([^*\n]+)\*\*(.)", BLOCK.sub("", text)):
            assert not (re.search(r"[。，：；）]$", words) and re.match(r"[\w`]", after)), f"{name}: {words}"


def test_no_line_or_cell_of_a_page_in_chinese_is_in_english() -> None:
    left = []
    for name, text, _ in texts():
        plain = re.sub(r"<[^>]*>", "", LINK.sub(r"\1]", CODE.sub("", BLOCK.sub("", text))))
        for part in re.split(r"\n|(?<!\\)\|", plain):
            if re.search(r"[a-z]{2,}(?: [a-z]{2,}){2}", part) and not re.search(r"[\u4e00-\u9fff]", part):
                left.append(f"{name}: {part.strip()}")
    assert left == []


PAGE = """# Title

[中文](page.zh-CN.md) · more

Text with `code`, [a link](other.md#part), 2.5 ms on 30 November 2026.

<!-- file: a.py -->
```python
x = 1  # one
```

- item 1

| a | b |
|---|---|
| `c` | 1,234 |

![image](i.png)

## Part

Ends.
"""
TWIN = """# 标题

[English](page.md) · 更多

2026-11-30，`code`、[链接](other.zh-CN.md#part)，2.5 毫秒。

<!-- file: a.py -->
```python
x = 1  # 一
```

- 第 1 项

| 甲 | 乙 |
|---|---|
| `c` | 1,234 |

![图](i.png)

<a id="part"></a>

## 部分

结束。
"""


def test_a_translation_has_no_differences() -> None:
    assert list(differences(TWIN, PAGE)) == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("## 部分", "### 部分", "## Part: level"),
        ("\n## 部分\n", "", "1 sections instead of 2"),
        ("结束。", "结束。\n\n再见。", "## Part: paragraphs"),
        ("- 第 1 项", "第 1 项", "# Title: items"),
        ("| `c` | 1,234 |", "| `c` |", "# Title: cells"),
        ("i.png", "j.png", "# Title: images"),
        ("other.zh-CN.md#part", "other.zh-CN.md", "# Title: links"),
        ("`code`", "`Code`", "# Title: code in the text"),
        ("2.5 毫秒", "2.6 毫秒", "# Title: numbers in the text"),
        ("2026-11-30", "2026-11-29", "# Title: numbers in the text"),
        ("x = 1", "x = 2", "# Title: lines of code block 1"),
        ("```\n\n- 第", "```\n\n```\n```\n\n- 第", "# Title: code blocks"),
        ("x = 1  # 一\n", "y = 2\nx = 1\n", "# Title: lines of code block 1"),
        ("a.py", "b.py", "# Title: lines of code block 1"),
        ("1,234", "1,235", "# Title: numbers in cell 6"),
        ("| `c`", "| c", "# Title: code in cell 5"),
    ],
)
def test_differences_are_found(old: str, new: str, what: str) -> None:
    assert old in TWIN
    assert next(iter(differences(TWIN.replace(old, new), PAGE))).startswith(what)


def test_every_tutorial_and_how_to_is_in_chinese() -> None:
    pages = {page.with_name(page.name.replace(ENDING, ".md")) for page in twins()}
    english_pages = [
        page for page in committed("docs/tutorial/*.md", "docs/how-to/*.md") if not page.name.endswith(ENDING)
    ]
    assert len(english_pages) > 15
    assert sorted(page.stem for page in english_pages if page not in pages) == []
