"""Clean copy of a model's folder in a tree with the layout of the repository."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import ConfigError
from model_config.cases.config import ROOT, Case
from model_config.run.snapshot import WEIGHTS, Snapshot, Snapshots, ignored
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import below, copy_tree, remove_tree, walk


@contextmanager
def workplace(case: Case, work_dir: Path, root: Path = ROOT, snapshot: Snapshot | None = None) -> Iterator[Path]:
    """Yield a tree with a clean copy of the model's folder (:func:`mirror`); deleted at the end of the block.

    Args:
        work_dir: parent folder of the tree.
        snapshot: snapshot of the repository; default: a new one for this tree.

    Raises:
        ConfigError: the folder cannot be copied.
    """
    own = Snapshots(root, work_dir)
    tree = None
    try:
        try:
            tree = Path(tempfile.mkdtemp(prefix=f"{case.name[:40]}-", dir=work_dir))
            mirror(root, case, tree, snapshot or own.current())
        except OSError as error:
            reason = one_line(error)
            fix = "keep only plain files and links there"
            raise ConfigError(f"{case.run_dir} cannot be copied to {tree or work_dir}: {reason}; {fix}") from error
        yield tree
    finally:
        if tree is not None:
            remove_tree(tree)
        own.close()


def mirror(root: Path, case: Case, tree: Path, snapshot: Snapshot) -> None:
    """Create a tree with the layout of the repository that contains a copy of the model's folder.

    Everything else is a link to a snapshot, none to the repository. Scripts find the repository by
    ``Path(__file__).resolve().parents[3]``, which follows links, so they are copied. Checkpoints that git ignores are
    omitted, as in a fresh clone.

    Raises:
        OSError: something cannot be read or written.
    """
    original, copy, shared = root, tree, snapshot.folder
    for part in case.run_dir.split("/"):
        copy.mkdir(exist_ok=True)
        for entry in shared.iterdir():
            if entry.name != part:
                (copy / entry.name).symlink_to(entry.absolute())
        original, copy, shared = original / part, copy / part, shared / part
    copy_tree(original, copy, "__pycache__")
    _mend(root, original, copy, snapshot.folder)
    for ckpt in ignored_checkpoints(case, root):
        (copy / ckpt).unlink(missing_ok=True)


def ignored_checkpoints(case: Case, root: Path) -> list[str]:
    """Return the weights in a case's folder that git ignores, relative to it; a fresh clone lacks them."""
    top = root / case.run_dir
    named = {os.path.normpath(ckpt) for step in case.steps for ckpt in step.ckpts.values()}
    found = {path.relative_to(top).as_posix() for path in below(top) if path.suffix in WEIGHTS}
    return ignored(top, sorted(found | {name for name in named if not name.startswith(("..", "/"))}))


def _mend(root: Path, original: Path, copy: Path, shared: Path) -> None:
    """Redirect links that lead out of the copied folder to their original target, or to its copy.

    The copy is writable even if the checkout is read-only, as steps write there.
    """
    inside, zoo = original.resolve(), root.resolve()
    for folder, folders, files in walk(copy):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink() and not (mode := path.stat().st_mode) & stat.S_IWUSR:
                path.chmod(stat.S_IMODE(mode) | stat.S_IWUSR)
        for link in (path for name in folders + files if (path := Path(folder, name)).is_symlink()):
            target = Path(os.path.realpath(original / link.relative_to(copy)))
            if target.is_relative_to(inside):
                target = copy / target.relative_to(inside)  # also where the link named the checkout itself
            elif target.is_relative_to(zoo):
                target = shared / target.relative_to(zoo)
            link.unlink()
            link.symlink_to(target)
