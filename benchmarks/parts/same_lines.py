"""Count the lines with equal text in two runs: results of ``example_multi_batch.py --json FILE``.

    cd example/ocr/ppocr_v4
    python example_multi_batch.py --target onnx --json onnx.json
    python example_multi_batch.py --target sdaa --json sdaa.json
    python ../../../benchmarks/same_lines.py onnx.json sdaa.json

Lines that differ are printed. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    """Compare line by line, each page's in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    args = parser.parse_args()
    pages = [json.loads(file.read_text(encoding="utf-8"))["answers"] for file in (args.one, args.other)]
    if [page["name"] for page in pages[0]] != [page["name"] for page in pages[1]]:
        sys.exit("error: the two files are of different pages; run both on the same --data_path")
    same = count = 0
    for one, other in zip(*pages, strict=True):
        texts = [[line["text"] for line in page["answer"]["lines"]] for page in (one, other)]
        most = max(map(len, texts))
        for left, right in zip(*([*text, *[None] * (most - len(text))] for text in texts), strict=True):
            count += 1
            same += left == right
            if left != right:
                print(f"{Path(one['name']).name}: {left!r} and {right!r}")
    print(f"{same} of {count} lines are the same")
    return int(same != count)


if __name__ == "__main__":
    sys.exit(main())
