"""Files of installed packages that name CUDA, migrated in memory: ``python -m tests.transplant.corpus``.

The files are read where they lie. Each must parse, come back exactly outside of the changes that are listed, and have
its CUDA references changed or reported. References are counted by ``tokenize``, which knows nothing of the tool.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import re
import sys
import time
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transplant.edits import TODO, apply
from transplant.migrate import Options, migrate
from transplant.source import NotPythonError, decode

PACKAGES = ("torch", "torchvision", "timm", "transformers", "accelerate", "ray", "torchmetrics", "lightning")
"""Packages that are read if installed."""

WORD = re.compile(r"(?i)cuda|nccl")
NAMES_OR_TEXTS = {tokenize.NAME, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
MOST = 400_000
"""Maximum bytes of a file; larger ones are generated tables."""


@dataclass
class Counts:
    """Counts of the references: of all files, or of one package."""

    files: int = 0
    unparsed: list[str] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    restless: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    unseen: list[str] = field(default_factory=list)

    @property
    def references(self) -> int:
        return self.kinds.total()

    @property
    def share(self) -> float:
        return 1 - self.kinds["unseen"] / max(1, self.references)


def corpus_files(packages: Sequence[str] = PACKAGES) -> Iterator[tuple[str, Path]]:
    """Yield the Python files of installed packages that name CUDA, in a fixed order."""
    for package in packages:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            continue
        for path in sorted(Path(found.origin).parent.rglob("*.py")):
            if path.stat().st_size <= MOST and WORD.search(path.read_text(encoding="utf-8", errors="replace")):
                yield package, path


def references(text: str) -> list[tuple[int, int, str]]:
    """Return the names and strings of a text that name CUDA: start, end, and the token."""
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        if token.type in NAMES_OR_TEXTS and WORD.search(token.string):
            start = starts[token.start[0] - 1] + token.start[1]
            found.append((start, starts[token.end[0] - 1] + token.end[1], token.string))
    return found


def measure(path: Path, counts: Counts, again: bool = False) -> None:
    """Migrate a file and count the kinds of its references.

    Args:
        again: migrate the result too, which must change nothing.
    """
    stored = decode(path.read_bytes())
    counts.files += 1
    try:
        script = migrate(stored.text, Options(), run=True)
    except NotPythonError as error:
        counts.unparsed.append(f"{path}:{error.line} {error}")
        return
    new = apply(stored.text, script.edits)
    if apply(new, script.inverse()) != stored.text or stored.encode(stored.text) != path.read_bytes():
        counts.inexact.append(str(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(new)
    except SyntaxError as error:
        counts.broken.append(f"{path}: {error}")
    if again and migrate(new, Options(), run=True).edits:
        counts.restless.append(str(path))
    for start, end, word in references(stored.text):
        kind = _kind(script, start, end)
        counts.kinds[kind] += 1
        if kind == "unseen":
            counts.unseen.append(f"{path}:{script.lines.place(start)[0]} {word[:60]!r}")


def _kind(script, start: int, end: int) -> str:  # type: ignore[no-untyped-def]
    if any(edit.old and edit.start < end and start < edit.end for edit in script.edits):
        return "changed"
    kinds = [found.kind for found in script.findings if found.start < end and start < found.end]
    return "for a person" if TODO in kinds else "kept, with a reason" if kinds else "unseen"


def run(packages: Sequence[str], most: int | None = None, again: bool = False) -> dict[str, Counts]:
    """Migrate the files of packages; ``most`` limits their number, spread over all."""
    files = list(corpus_files(packages))
    if most is not None:
        files = files[:: max(1, len(files) // most)][:most]
    found: dict[str, Counts] = {}
    for package, path in files:
        measure(path, found.setdefault(package, Counts()), again)
    return found


def main() -> int:
    """Print a table, and the failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES))
    parser.add_argument("--most", type=int, help="files; all where it is not given")
    parser.add_argument("--again", action="store_true", help="migrate the results too: nothing may change")
    args = parser.parse_args()
    begin = time.process_time()
    found = run(args.packages, args.most, args.again)
    wrong = False
    for package, counts in found.items():
        kinds = ", ".join(f"{number} {kind}" for kind, number in counts.kinds.most_common())
        print(f"{package}: {counts.files} files, {counts.references} references: {kinds}; {100 * counts.share:.2f} %")
        for name in ("unparsed", "inexact", "broken", "restless", "unseen"):
            for line in getattr(counts, name)[:40]:
                print(f"  {name}: {line}")
        wrong |= bool(counts.unparsed or counts.inexact or counts.broken or counts.restless) or counts.share < 0.95
    print(f"{sum(c.files for c in found.values())} files, {time.process_time() - begin:.0f} s of CPU")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
