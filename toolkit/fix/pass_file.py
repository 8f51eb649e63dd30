"""Pass files that keep nodes in float32, optionally based on another pass file."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from engine.passes import PassOptions
from tecoinfer_modelzoo.files import write_file


def write_pass(path: Path, float32: Collection[str], why: str, base: Path | None = None) -> Path:
    """Write a pass file that keeps nodes (names, or operators) in float32, and return its path.

    ``why``: comment. ``base``: a pass file whose text is copied; the nodes are added to its ``skip_ops``.
    """
    before = PassOptions.load(base).skip_ops - set(float32)
    names = "".join(f"    {json.dumps(name, ensure_ascii=False)},\n" for name in (*sorted(before), *float32))
    listed = f"skip_ops = [\n{names}]\n" if names else "skip_ops = []\n"
    comment = f"Nodes that stay float32: {why}."
    if base is None:
        text = f'"""{comment}"""\n\n{listed}'
    else:
        text = f"{base.read_text(encoding='utf-8').rstrip()}\n\n\n# {comment}\n{listed}"
    write_file(path, text.encode())
    return path
