"""Write the held-out clips to data/, in the layout of Speech Commands: a folder per word, and testing_list.txt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from words import FEATURES, split, words

from engine import add_version
from utils.pipeline import cli
from utils.preprocess.audio.wav import write_mu_law

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Write the clips and print their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data")
    args = parser.parse_args()
    train, test = split(words())
    names = []
    for word in test:
        folder = args.out / word.label
        folder.mkdir(parents=True, exist_ok=True)
        write_mu_law(folder / f"{word.name}.wav", word.samples, FEATURES.rate)
        names.append(f"{word.label}/{word.name}.wav\n")
    (args.out / "testing_list.txt").write_text("".join(sorted(names)), encoding="utf-8", newline="\n")
    print(f"{len(train)} clips to train on, {len(test)} held out and written")
    return 0


if __name__ == "__main__":
    cli.run(main)
