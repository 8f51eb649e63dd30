"""Fetch PP-OCRv4's three ONNX files (teco fetch ppocr_v4), and copy them into a folder if one is given."""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from utils.fetch import fetched
from utils.pipeline import cli


def main() -> int:
    """Print the path of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, help="copy the files there (default: they stay in the cache)")
    args = parser.parse_args()
    files = sorted((fetched("ppocr_v4") / "rapidocr_onnxruntime" / "models").glob("*.onnx"))
    for file in files:
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, args.out / file.name)
        place = file if args.out is None else args.out / file.name
        print(f"{place} ({file.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    cli.run(main)
