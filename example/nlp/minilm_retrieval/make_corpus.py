"""Write data/corpus.jsonl: the paragraphs of this project's own documentation, each with its page and heading.

The committed file is a snapshot, so that metrics stay the same when the documentation changes; the questions
(data/queries.jsonl) refer to its passages.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import add_version
from utils.pipeline import cli

LEAST, MOST = 14, 70
"""Fewest and most words of a passage: shorter paragraphs are skipped, longer ones are cut at the end of a sentence."""


def passages(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of each paragraph of prose: no tables, code, lists or images."""
    heading, fenced = page.stem, False
    for block in page.read_text(encoding="utf-8").split("\n\n"):
        if block.count("```") % 2:
            fenced = not fenced
            continue
        if fenced or "```" in block:
            continue
        lines = block.strip().split("\n")
        if lines[0].startswith("#"):
            heading = lines[0].lstrip("#").strip()
            lines = lines[1:]
        text = plain(" ".join(line.strip() for line in lines))
        if text and text[0] not in "|-*!<>0123456789" and len(text.split()) >= LEAST:
            yield plain(heading), shortened(text)


def plain(text: str) -> str:
    """Return text without Markdown markup."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", text).strip()


def shortened(text: str) -> str:
    """Return the first sentences of a text, at most :data:`MOST` words, but at least one sentence."""
    sentences = re.split(r"(?<=[.:;]) ", text)
    kept = sentences[:1]
    for sentence in sentences[1:]:
        if len(" ".join([*kept, sentence]).split()) > MOST:
            break
        kept.append(sentence)
    return " ".join(kept)


def main() -> int:
    """Write the file and print the number of passages."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--docs", type=Path, default=HERE.parents[2] / "docs", help="folder of the pages")
    parser.add_argument("--out", type=Path, default=HERE / "data/corpus.jsonl")
    args = parser.parse_args()
    rows, seen = [], set[str]()
    for page in sorted(args.docs.rglob("*.md")):
        for number, (title, text) in enumerate(passages(page), start=1):
            if text not in seen:
                rows.append({"_id": f"{page.stem}-{number}", "title": title, "text": text})
                seen.add(text)
    args.out.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    print(f"{args.out.name}: {len(rows)} passages")
    return 0


if __name__ == "__main__":
    cli.run(main)
