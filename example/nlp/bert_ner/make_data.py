"""Write the held-out sentences: data/val.conll, the same every time.

Half of the names are ones that occur in no training sentence, and a quarter of the sentences have a pattern that
training sentences do not have. Three sentences make a document.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from utils.datasets.synthetic.tagged_sentences import tagged_sentence
from utils.datasets.text.tagged import DOCUMENT

DOCUMENTS, SENTENCES = 120, 3
UNSEEN = 0.5
"""Share of held-out names; half of it is the share of held-out patterns."""


def main() -> None:
    """Write the files."""
    chance = np.random.default_rng(2)
    rows = list[str]()
    for _ in range(DOCUMENTS):
        rows += [f"{DOCUMENT} O", ""]
        for _ in range(SENTENCES):
            sentence = tagged_sentence(chance, UNSEEN)
            rows += [f"{word} {tag}" for word, tag in zip(sentence.words, sentence.tags, strict=True)]
            rows.append("")
    (HERE / "data").mkdir(exist_ok=True)
    (HERE / "data" / "val.conll").write_text("\n".join(rows), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
