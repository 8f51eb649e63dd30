"""Write the held-out pages of the small language model: data/heldout.jsonl, an object with page and text per line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from corpus import is_held_out, made_by, pages

from engine import add_version
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Write the file below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder of heldout.jsonl")
    out = parser.parse_args().out
    held = {name: text for name, text in pages().items() if is_held_out(name)}
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"page": name, "text": text}, ensure_ascii=False) + "\n" for name, text in held.items()]
    (out / "heldout.jsonl").write_text("".join(lines), encoding="utf-8")
    print(f"{out / 'heldout.jsonl'}: {len(held)} pages, {sum(map(len, held.values()))} characters, {made_by()}")
    return 0


if __name__ == "__main__":
    cli.run(main)
