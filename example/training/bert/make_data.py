"""Write a small text to train on: data/train.txt and data/val.txt, a text per line.

The texts are English pages about Python's library, those that example/nlp/tiny_gpt holds out (its README names their
source and their licence); every tenth is kept apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZOO = HERE.parents[2]
sys.path.insert(0, str(ZOO))
from engine import add_version
from utils.pipeline import cli
from utils.places import check_folder

PAGES = ZOO / "example" / "nlp" / "tiny_gpt" / "data" / "heldout.jsonl"


def main() -> int:
    """Write both files below --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument(
        "--out", type=Path, default=HERE / "data", metavar="DIR", help="default: data, in the folder of this file"
    )
    out = parser.parse_args().out
    check_folder("--out", out)
    lines = PAGES.read_text(encoding="utf-8").splitlines()
    texts = [text for line in lines for text in json.loads(line)["text"].splitlines() if len(text.split()) > 5]
    out.mkdir(parents=True, exist_ok=True)
    apart = texts[::10]
    kept = [text for number, text in enumerate(texts) if number % 10]
    for name, chosen in (("train", kept), ("val", apart)):
        (out / f"{name}.txt").write_text("".join(f"{text}\n" for text in chosen), encoding="utf-8")
    print(f"{out}: {len(kept)} texts to train on, {len(apart)} held out")
    return 0


if __name__ == "__main__":
    cli.run(main)
