"""A new model: a folder that runs at once, and its case in ``model.yaml``; all of it or nothing."""

from __future__ import annotations

import json
import keyword
import os
import re
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from string import Template

from engine.base import ConfigError
from model_config.config import ROOT, read_cases
from toolkit.zoo import PLACES, config_files

TEMPLATES = Path(__file__).with_name("templates")

SHAPES = ("circle", "cross", "square")
"""Classes of the sample pictures."""

SIZE = 32
"""Height and width of the sample pictures and of the tiny network's input."""

LONGEST = 40
"""Characters of a name; lines of the templates with longer ones would be too long."""

_PATHS = {
    "core": "sys.path.insert(0, str(Path(__file__).resolve().parents[3]))",
    "contrib": """\
sys.path.insert(0, str(Path(__file__).resolve().parents[4]))  # the core
sys.path.append(str(Path(__file__).resolve().parents[3]))  # contrib/, behind it""",
}
"""How a script finds the zoo's packages from where it lies."""


@dataclass(frozen=True, slots=True)
class Created:
    """What :func:`create` made: the folder and the file with the case (from the root), and how many files."""

    folder: str
    config: str
    files: int


def create(domain: str, model: str, *, contrib: bool = False, root: Path = ROOT) -> Created:
    """Write a model's folder and append its case.

    The network is tiny and has random weights, and the files say so; the pictures are drawn here.

    Args:
        domain, model: names of the folders.
        contrib: below ``contrib/`` instead of in the core.
        root: the repository.

    Raises:
        ConfigError: a name cannot be used or is taken, or the file with the cases cannot be appended to; then nothing
            was changed.
    """
    place = "contrib" if contrib else "core"
    _check_names(domain, model, root)
    _check_case(model, root)
    folder, config = f"{PLACES[place].folder}/{domain}/{model}", PLACES[place].config
    words = {"model": model, "title": model.replace("_", " ").title(), "folder": folder, "paths": _PATHS[place]}
    words |= {"shapes": ", ".join(SHAPES), "size": str(SIZE), "labels": json.dumps(SHAPES)}
    try:
        files = _write(root / folder, root / config, words, root)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; nothing was changed") from error
    return Created(folder, config, files)


def _write(folder: Path, config: Path, words: dict[str, str], root: Path) -> int:
    """Write folder and case, or take back what was written; return the number of files."""
    with ExitStack() as undo:
        _make_parents(folder.parent, root, undo)
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        undo.callback(shutil.rmtree, partial, ignore_errors=True)
        files = _fill(partial, words)
        partial.rename(folder)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        _append(config, _rendered("case.yaml", words), words["model"], root, undo)
        undo.pop_all()
    return files


def _check_names(domain: str, model: str, root: Path) -> None:
    for what, name in (("domain", domain), ("model", model)):
        if not _usable(name):
            near = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
            hint = f"; write {near!r}" if _usable(near) else ""
            raise ConfigError(
                f"{what} {name!r} must start with a lower-case letter, hold only lower-case letters, digits and "
                f"underscores, at most {LONGEST}, and not be a word of Python{hint}"
            )
    for place in PLACES.values():
        if not (root / place.folder).parent.is_dir():
            raise ConfigError(f"{root} is not a clone of the zoo: it has no {place.folder}; run teco in a clone")
        if (root / place.folder / domain / model).exists():
            raise ConfigError(
                f"{place.folder}/{domain}/{model} exists already; choose another name, or remove it first"
            )


def _usable(name: str) -> bool:
    return bool(re.fullmatch(rf"[a-z][a-z0-9_]{{0,{LONGEST - 1}}}", name)) and not keyword.iskeyword(name)


def _check_case(name: str, root: Path) -> None:
    """Raise where the case name is taken: a case must have its name alone over all files."""
    for case in read_cases(config_files(root), root)[0]:
        if case.name == name:
            where = f"{case.source}:{case.line}"
            raise ConfigError(f"case name {name!r} is taken by {case.run_dir} in {where}; choose another model name")


def _make_parents(folder: Path, root: Path, undo: ExitStack) -> None:
    missing = [path for path in (folder, *folder.parents) if path.is_relative_to(root) and not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        undo.callback(path.rmdir)


def _fill(folder: Path, words: dict[str, str]) -> int:
    """Write the files of a model and return their number."""
    (folder / "images").mkdir(parents=True)
    for template in sorted(TEMPLATES.glob("*.tmpl")):
        name = template.name.removesuffix(".tmpl")
        if name != "case.yaml":
            (folder / name).write_text(_rendered(name, words), encoding="utf-8")
    labels = [_draw(folder / "images", shape, label) for label, shape in enumerate(SHAPES)]
    text = "# Pictures drawn by `teco new` and their classes: path and class index.\n" + "".join(labels)
    (folder / "images" / "val.txt").write_text(text, encoding="utf-8")
    return sum(path.is_file() for path in folder.rglob("*"))


def _rendered(name: str, words: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{name}.tmpl").read_text(encoding="utf-8")).substitute(words)


def _draw(folder: Path, shape: str, label: int) -> str:
    """Draw two pictures of a shape and return their lines of the label file."""
    from PIL import Image, ImageDraw

    lines = []
    for index, (edge, ink) in enumerate([(6, (200, 60, 40)), (9, (40, 90, 200))]):
        picture = Image.new("RGB", (SIZE, SIZE), (240, 240, 240))
        pen, far = ImageDraw.Draw(picture), SIZE - 1 - edge
        if shape == "circle":
            pen.ellipse((edge, edge, far, far), fill=ink)
        elif shape == "square":
            pen.rectangle((edge, edge, far, far), fill=ink)
        else:
            pen.line((edge, edge, far, far), fill=ink, width=4)
            pen.line((edge, far, far, edge), fill=ink, width=4)
        name = f"{shape}_{index}.png"
        picture.save(folder / name, optimize=True)
        lines.append(f"{name} {label}\n")
    return "".join(lines)


def _append(config: Path, case: str, name: str, root: Path, undo: ExitStack) -> None:
    """Append a case to the end of a file of cases, whose text stays as it is; read it back before it counts.

    Raises:
        ConfigError: with the case behind it, the file cannot be read.
    """
    before = config.read_bytes().decode("utf-8") if config.is_file() else ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    config.parent.mkdir(parents=True, exist_ok=True)
    partial = config.with_name(f".{config.name}.{os.getpid()}.partial")
    undo.callback(partial.unlink, missing_ok=True)
    partial.write_bytes(f"{before}{gap}{case}".encode())
    others = [file for file in config_files(root) if file != config]
    problems = [one for one in read_cases([partial, *others], root)[1] if one.case in ("", name)]
    wrong = [str(problem.finding) for problem in problems] or _not_a_list(partial, name)
    if wrong:
        raise ConfigError(f"a case cannot be appended to {config}: {wrong[0].replace(partial.name, config.name)}")
    partial.replace(config)


def _not_a_list(file: Path, name: str) -> list[str]:
    """Say why a file as a whole is not a list of cases that ends with this one; the reader of cases takes bad files."""
    import yaml

    try:
        cases = yaml.safe_load(file.read_bytes())
    except yaml.YAMLError as error:
        return [f"it would not be YAML any more ({' '.join(str(error).split())}); correct the file first"]
    ends = isinstance(cases, list) and isinstance(cases[-1], dict) and cases[-1].get("case_name") == name
    return [] if ends else ["it is not a list of cases; start each case with '- case_name:' at the start of a line"]
