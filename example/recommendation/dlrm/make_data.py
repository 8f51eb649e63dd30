"""Write data/clicks.txt: synthetic lines in the layout of Criteo's click logs, whose terms forbid redistribution."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.datasets.synthetic.criteo_like import clicks
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent
ROWS = 400


def main() -> int:
    """Write the file."""
    file = HERE / "data" / "clicks.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(line + "\n" for line in clicks(ROWS)), encoding="ascii", newline="\n")
    print(f"{file}: {ROWS} lines")
    return 0


if __name__ == "__main__":
    cli.run(main)
