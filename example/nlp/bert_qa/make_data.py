"""Write the held-out stories: data/stories.json (SQuAD 2.0), the same every time; some need two windows."""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from utils.datasets.synthetic.fact_stories import squad, story

STORIES, LONG = 90, 15
"""Numbers of stories of four people, and of nine people, whose text does not fit into one window."""


def main() -> None:
    """Write the file."""
    chance = np.random.default_rng(2)
    stories = [story(chance, True) for _ in range(STORIES)] + [story(chance, True, people=9) for _ in range(LONG)]
    file = HERE / "data" / "stories.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(squad(stories), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
