"""A clean copy of a model's folder, inside a tree that looks like the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import ConfigError, one_line
from model_config.cases.config import ROOT, Case

WEIGHTS = (
    ".ckpt",
    ".engine",
    ".onnx",
    ".pdiparams",
    ".pdmodel",
    ".pdparams",
    ".pt",
    ".pth",
    ".safetensors",
    ".tecoengine",
)
"""Endings of files that hold a model."""


@contextmanager
def workplace(case: Case, work_dir: Path, root: Path = ROOT) -> Iterator[Path]:
    """Yield a tree with a clean copy of the model's folder (:func:`mirror`); it goes at the end of the block.

    Raises:
        ConfigError: the folder cannot be copied.
    """
    tree = Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=work_dir))
    try:
        try:
            mirror(root, case, tree)
        except OSError as error:
            reason = one_line(error)
            fix = "keep only plain files and links there"
            raise ConfigError(f"{case.run_dir} cannot be copied to {tree}: {reason}; {fix}") from error
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def mirror(root: Path, case: Case, tree: Path) -> None:
    """Build a tree that looks like the repository and in which only the model's folder is a real copy.

    Everything else is linked. The scripts find the repository by ``Path(__file__).resolve().parents[3]``, which follows
    links; so they are copied. Checkpoints that git ignores are left out: in a fresh clone only the export makes them.

    Raises:
        OSError: something cannot be read or written.
    """
    original, copy = root, tree
    for part in case.run_dir.split("/"):
        copy.mkdir(exist_ok=True)
        for entry in original.iterdir():
            if entry.name != part and not entry.name.startswith("."):
                (copy / entry.name).symlink_to(entry.absolute())
        original, copy = original / part, copy / part
    shutil.copytree(original, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    _mend_links(original, copy)
    for ckpt in ignored_checkpoints(case, root):
        (copy / ckpt).unlink(missing_ok=True)


def ignored_checkpoints(case: Case, root: Path) -> list[str]:
    """Return the weights in a case's folder that git ignores, relative to it: those a fresh clone has not."""
    top = root / case.run_dir
    named = {os.path.normpath(ckpt) for step in case.steps for ckpt in step.ckpts.values()}
    found = {path.relative_to(top).as_posix() for path in top.rglob("*") if path.suffix in WEIGHTS}
    return _ignored(top, sorted(found | {name for name in named if not name.startswith(("..", "/"))}))


def _mend_links(original: Path, copy: Path) -> None:
    """Let links that lead out of the copied folder (to a data set, say) lead where they did before."""
    inside = original.resolve()
    for folder, folders, files in os.walk(copy):
        for link in (path for name in folders + files if (path := Path(folder, name)).is_symlink()):
            target = (original / link.relative_to(copy)).resolve()
            if not target.is_relative_to(inside):
                link.unlink()
                link.symlink_to(target)


def _ignored(folder: Path, names: list[str]) -> list[str]:
    """Return which of the files in a folder git ignores; without git, or outside a repository, it ignores nothing."""
    command = ["git", "check-ignore", "-z", "--stdin"]
    try:
        ran = subprocess.run(command, input="\0".join(names).encode(), cwd=folder, capture_output=True, check=False)
    except OSError:  # git is not installed
        return []
    return [name for name in ran.stdout.decode().split("\0") if name]
