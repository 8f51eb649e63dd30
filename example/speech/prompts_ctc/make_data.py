"""Write data/held_out.jsonl (held-out prompts and their texts) and words.txt, and copy some prompts to data/samples."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from prompts import held_out, prompts

from engine import add_version
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent
SAMPLES = 8
"""Number of recordings that are copied, evenly spaced by name among the shorter half."""


def main() -> int:
    """Write the files and print their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data")
    args = parser.parse_args()
    train, test = held_out(prompts())
    known = {word for prompt in train for word in prompt.text.split()}
    words = [word for prompt in test for word in prompt.text.split()]
    (args.out.parent / "words.txt").write_text("\n".join(sorted(known)) + "\n", encoding="utf-8", newline="\n")
    samples = args.out / "samples"
    samples.mkdir(parents=True, exist_ok=True)
    rows = [(f"{one.name}.wav", one.text) for one in test]
    _write(args.out / "held_out.jsonl", rows)
    short = sorted(sorted(test, key=lambda one: one.file.stat().st_size)[: len(test) // 2])
    chosen = short[:: len(short) // SAMPLES][:SAMPLES]
    for one in chosen:
        shutil.copyfile(one.file, samples / one.file.name)
    _write(args.out / "samples.jsonl", [(f"samples/{one.file.name}", one.text) for one in chosen])
    unknown = sum(word not in known for word in words)
    print(f"{len(test)} prompts of {len(words)} words, of which {unknown} are in no other prompt; {len(chosen)} copied")
    return 0


def _write(file: Path, rows: list[tuple[str, str]]) -> None:
    lines = [json.dumps({"audio_filepath": name, "text": text}) + "\n" for name, text in rows]
    file.write_text("".join(lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    cli.run(main)
