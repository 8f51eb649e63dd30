"""Broken zoos (cases, scorecards, READMEs, models, folders), and commands that read a whole zoo."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.case import ROOT
from tests.fuzz.makers import yaml_attacks
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.names import not_a_file_reason, odd_name

SCRIPT = str(ROOT / "tests" / "fuzz" / "run_zoo.py")
DIGITS = ROOT / "example" / "classification" / "digits"
MARKS = "# Zoo\n<!-- teco site: begin -->\n<!-- teco site: end -->\n"
HTML = "<script>alert(1)</script>"
TEXTS = (HTML, "=1+1", "\x1b[31m", "| a | b |", "[x](javascript:alert(1))", "n" * 200_000, "\u202e", "", "# " * 9000)


def zoo(rng: random.Random, folder: Path) -> tuple[list[str], str]:
    """Write a zoo of two models, break a part of it, and return a command on it and a description of the change."""
    root = folder / "zoo"
    model = root / "example" / "classification" / "digits"
    model.mkdir(parents=True)
    for name in ("numerics.yaml", "perf.yaml", "zoo.yaml", "README.md", "example_valid.py", "digits_dyn.onnx"):
        shutil.copy(DIGITS / name, model)
    (root / "model_config").mkdir()
    shutil.copy(ROOT / "model_config" / "model.yaml", root / "model_config")
    for name in ("README.md", "README.zh-CN.md", "example/README.md"):
        (root / name).write_text(MARKS)
    done = "; ".join(_broken(rng, root, model) for _ in range(rng.choice((1, 1, 2, 3))))
    words = rng.choice(
        (
            ["list"],
            ["list", "--json"],
            ["info", "digits"],
            ["info", "classification/digits", "--json"],
            ["info", rng.choice(("../..", "x\0y", "\x1b[31m", "n" * 5000, "", ".", "/", HTML))],
            ["run", "digits", rng.choice(("valid", "single", "nothing")), "--help"],
            ["site", "--out", "site.html"],
            ["site", "--out", "site.html", "--write_docs"],
        )
    )
    words = [word.replace("\0", "") for word in words]
    return [SCRIPT, str(root), *words], f"zoo: {done}"


def _broken(rng: random.Random, root: Path, model: Path) -> str:
    try:
        return BREAKS[rng.choice(list(BREAKS))](rng, root, model)
    except OSError as error:  # what was broken before may leave nothing to break
        return f"not possible: {type(error).__name__}"


def _file(rng: random.Random, root: Path, model: Path) -> str:
    """Replace a file by another object, or remove it."""
    path = rng.choice([*model.iterdir(), *root.rglob("*.md"), *root.rglob("model.yaml"), root])
    if not path.is_file() or path.is_symlink():
        return "nothing"
    path.unlink()
    return f"{path.name} gone" if rng.random() < 0.2 else not_a_file_reason(rng, path)


def _yaml(rng: random.Random, root: Path, model: Path) -> str:
    import yaml

    name = rng.choice(("numerics.yaml", "numerics.yaml", "perf.yaml", "zoo.yaml", "model.yaml"))
    path = root / "model_config" / name if name == "model.yaml" else model / name
    if not path.is_file():
        return "nothing"
    how = rng.randrange(4)
    if how == 0:
        content, what = mutated(path.read_bytes(), rng)
    elif how == 1:
        what = rng.choice(list(yaml_attacks.TEXTS))
        content = yaml_attacks.encoded(yaml_attacks.TEXTS[what], rng)[0]
    else:
        data = yaml.safe_load((DIGITS / name if name != "model.yaml" else ROOT / "model_config" / name).read_text())
        data = data[:3] if isinstance(data, list) else data
        text, what = yaml_attacks.changed(data, rng, HTML)
        content = yaml_attacks.encoded(text, rng)[0]
    path.write_bytes(content)
    return f"{name}: {what}"


def _text(rng: random.Random, root: Path, model: Path) -> str:
    path = rng.choice((model / "README.md", root / "README.md", model / "example_valid.py"))
    if not path.is_file():
        return "nothing"
    text = rng.choice(TEXTS)
    path.write_bytes(rng.choice((text.encode(), f"# {text}\n\n## 1. {text}\n\n{text}\n".encode(), b"\xff\xfe\0")))
    return f"{path.name}: {text[:30]!r}"


def _onnx(rng: random.Random, root: Path, model: Path) -> str:
    path = model / rng.choice(("digits_dyn.onnx", odd_name(rng, ".onnx")))
    content, what = mutated((DIGITS / "digits_dyn.onnx").read_bytes(), rng)
    if not os.path.lexists(path) or path.is_file():
        path.write_bytes(content)
    return f"{path.name}: {what}"


def _folders(rng: random.Random, root: Path, model: Path) -> str:
    """Add folders with odd names, loops of links and paths over PATH_MAX."""
    how = rng.choice(("odd", "loop", "deep", "pipe", "file", "no example", "many"))
    if how == "odd":
        other = model.parent / odd_name(rng, "")
        shutil.copytree(model, other, dirs_exist_ok=True, ignore=lambda *_: ["README.md", "digits_dyn.onnx"])
        (other / "example_single_batch.py").write_text("")
    elif how == "loop":
        (model / "again").symlink_to(model.parent)
        (root / "example" / "self").symlink_to("self")
    elif how == "deep":
        deep(model, 30)
    elif how == "pipe":
        not_a_file_reason(rng, model.parent / "other")
    elif how == "file":
        (root / "contrib").write_text("")
    elif how == "no example":
        shutil.rmtree(root / "example")
        return how + ", " + not_a_file_reason(rng, root / "example")
    else:
        for number in range(2000):
            (model / f"f{number}").touch()
    return how


def deep(folder: Path, levels: int) -> None:
    """Create nested folders with names of 250 characters each: 30 of them are longer than PATH_MAX."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 250, dir_fd=handle)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file.onnx", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


BREAKS: dict[str, Callable[[random.Random, Path, Path], str]] = {
    "file": _file,
    "yaml": _yaml,
    "text": _text,
    "onnx": _onnx,
    "folders": _folders,
}
