"""The wheel, built and installed without a clone, with every command on the user's files.

The environment lends the packages of this one, but not the zoo: that comes from the wheel.
"""

from __future__ import annotations

import os
import platform
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from source_imports import python_files
from support import DIGITS, ROOT
from test_architecture import FLOORS

from tecoinfer_modelzoo import version

pytestmark = pytest.mark.slow

PACKAGES = [package for package, floor in FLOORS.items() if floor < 5]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def files_of_the_packages() -> list[str]:
    """Return the packages' files in git, or not ignored by it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKAGES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a clean copy."""
    if subprocess.run([sys.executable, "-c", "import setuptools"], check=False, capture_output=True).returncode:
        pytest.skip("setuptools is not installed here, and building the wheel needs it")
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def built_wheel(folder: Path, **variables: str) -> Path:
    """Build the wheel from a clean copy in a folder, with these environment variables."""
    source, out = folder / "source", folder / "wheels"
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()]
    for name in (*files_of_the_packages(), *pages, "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    options = ["--no-build-isolation", "--no-deps", "--no-index", "-q", "-w", str(out)]
    command = [sys.executable, "-m", "pip", "wheel", ".", *options]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True, env=os.environ | variables)
    assert (done.stdout, done.stderr) == ("", "")
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ``bin`` of a new environment with the wheel."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # a path to the clone
    words = ["install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *words], check=True, capture_output=True, env=bare)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Return a function that runs a command of the environment in an empty folder."""

    def start(*words: object, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        env = {**kept, "PATH": f"{installed}:/usr/bin:/bin", **variables}
        first, *rest = map(str, words)
        command = [str(installed / first), *rest]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == code, (command, done.stdout[-2000:], done.stderr[-2000:])
        assert "Traceback" not in done.stderr
        return done

    return start


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """Write a model and images into the folder."""
    shutil.copy(DIGITS / "digits_dyn.onnx", tmp_path / "mine.onnx")
    for digit in range(10):
        for image in sorted((DIGITS / "data" / "val" / str(digit)).iterdir())[:2]:
            (tmp_path / "images" / str(digit)).mkdir(parents=True, exist_ok=True)
            shutil.copy(image, tmp_path / "images" / str(digit))
    yield tmp_path
    assert not (tmp_path / "contrib").exists()


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
    left_out = {
        "model_config/README.md",
        "tecoexec/README.md",
        *(f"tecoinfer_modelzoo/native/{name}.c" for name in ("_kernels", "_sums")),
    }
    assert set(files_of_the_packages()) - held == left_out
    assert {f"{package}/py.typed" for package in PACKAGES} <= held
    pages = {f"tecoinfer_modelzoo/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 40
    assert pages <= held
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == set(PACKAGES)
    assert set(python_files(*PACKAGES)) <= held


PREPROCESSED = """
import hashlib, numpy as np
from PIL import Image
from tecoinfer_modelzoo import native
from utils.preprocess.image.kernels import can_resize
from utils.preprocess.pytorch.classification import preprocess

levels = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
images = [Image.fromarray(levels), Image.fromarray(levels[..., 0]), Image.fromarray(levels[:, :90])]
found = [
    preprocess(images, dtype, 100, 120, interpolation=name)
    for dtype in ("float32", "float16") for name in ("bilinear", "bicubic")
]
print(hashlib.sha256(b"".join(one.tobytes() for one in found)).hexdigest())
print(can_resize(Image.Resampling.BILINEAR))
print(native.__file__)
"""


def extensions(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return [
            name for name in file.namelist() if name.startswith("tecoinfer_modelzoo/native/_") and name.endswith(".so")
        ]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the extension is for x86-64")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_extension_of_the_wheel_changes_no_bit(wheel: Path, installed: Path, run: Run) -> None:
    """Used as built, and with Pillow and NumPy in its place."""
    names = sorted(extensions(wheel))
    assert len(names) == 2
    if sys.version_info >= (3, 11):  # one file each for this and later versions of Python
        assert names == [f"tecoinfer_modelzoo/native/{name}.abi3.so" for name in ("_kernels", "_sums")]
        assert "-cp311-abi3-" in wheel.name
    with_it, without = (run("python", "-c", PREPROCESSED, TECO_NATIVE=value).stdout.splitlines() for value in "10")
    assert with_it[0] == without[0]
    assert (with_it[1], without[1]) == ("True", "False")
    assert Path(with_it[2]).is_relative_to(installed.parent)
    assert "C extension" in run("python", "-m", "engine", TECO_NATIVE="1").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="CC is not read there")
def test_a_wheel_is_built_without_a_compiler(tmp_path: Path) -> None:
    """Nothing is printed, and the extension is left out."""
    wheel = built_wheel(tmp_path, CC="/nonexistent/cc")
    assert not extensions(wheel)
    with zipfile.ZipFile(wheel) as file:
        assert "tecoinfer_modelzoo/native/__init__.py" in file.namelist()


LOOKS = {
    "version": ("teco", "--version"),
    "profile": ("teco", "profile", "mine.onnx"),
    "suggest": ("teco", "profile", "mine.onnx", "--suggest"),
    "ops": ("teco", "ops", "mine.onnx"),
    "compare": ("teco", "compare", "mine.onnx", "--data", "images/3/{image}"),
    "compare page": ("teco", "compare", "mine.onnx", "--html", "compare.html"),
    "overflow": ("teco", "overflow", "mine.onnx", "--data", "images", "--html", "overflow.html"),
    "fix": ("teco", "fix", "mine.onnx", "--data", "images", "--metric", "top1"),
    "dump": ("teco", "dump", "full", "mine.onnx", "--out", "dump"),
    "optest": ("teco", "optest", "mine.onnx", "{node}", "--out", "optest"),
    "completion": ("teco", "completion", "bash"),
    "tecoexec": ("tecoexec", "--onnx", "mine.onnx", "--input_shapes", "8*3*32*32", "--fp16", "--plot", "times.png"),
    "save": ("python", "-m", "tecoexec.save_engine", "--onnx", "mine.onnx", "--input_shapes", "8*3*32*32"),
    "sweep": ("python", "-m", "tecoexec.sweep", "--help"),
    "teco-smi": ("teco-smi", "--simulated"),
    "engine": ("python", "-m", "engine"),
}


@pytest.mark.long
def test_commands_work_on_user_files(own: Path, run: Run) -> None:
    import onnx

    words = {
        "image": next((own / "images" / "3").iterdir()).name,
        "node": next(node.name for node in onnx.load(own / "mine.onnx").graph.node if node.op_type == "Conv"),
    }
    for name, command in LOOKS.items():
        done = run(*(word.format(**words) for word in command))
        assert done.stdout, name
    assert f"teco {version()} (python 3." in run("teco", "--version").stdout
    assert {"compare.html", "overflow.html", "mine.tecoengine", "times.png"} <= {file.name for file in own.iterdir()}


@pytest.mark.long
def test_user_project_starts_runs_and_is_checked(own: Path, run: Run) -> None:
    assert run("teco", "list", code=2).stderr.startswith(f"error: no models under {own}, and no zoo to take some from")
    assert "teco new DOMAIN MODEL" in run("teco", "check", code=2).stderr
    (own / "utils").mkdir()
    (own / "utils" / "__init__.py").write_text("raise RuntimeError('the zoo has no business here')\n")
    new = {"classification": "shapes", "nlp": "words", "detection": "squares", "segmentation": "discs"}
    new |= {"face_detection": "faces", "face_verification": "portraits"}
    new |= {"ocr": "bars", "page_reading": "ribbons", "voice_activity": "tones", "speech": "chords"}
    new |= {"text_generation": "diets", "token_classification": "journeys", "recommendation": "snacks", "gnn": "rings"}
    for domain, model in new.items():
        run("teco", "new", domain, model)
        run("teco", "run", model, "export")
        assert "eval_metric " in run("teco", "run", model, "valid").stdout
    folder = own / "example" / "classification" / "shapes"
    assert "eval_metric " in run("python", folder / "example_valid.py", "--target", "onnx").stdout
    shapes = run("teco", "info", "shapes").stdout
    assert "example/classification/shapes" in shapes
    run("teco", "site", "--out", "site")
    done = run("teco", "check", "words", "--html", "report.html")
    assert "words" in done.stdout
    assert (own / "report.html").is_file()
    (folder / "utils.py").write_text("")
    said = run("python", folder / "example_valid.py", code=1).stderr
    assert said.startswith(f"error: 'utils' is your own {folder / 'utils.py'} here, not the zoo's ")


TRAINED = """
import torch, torch_sdaa
weight = torch.ones(3, device="sdaa", requires_grad=True)
(weight * 2).sum().backward()
print(torch_sdaa.__file__, weight.grad.tolist())
"""


def test_the_training_side_is_compiled_from_the_wheel_and_computes(run: Run) -> None:
    pytest.importorskip("torch")
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler; run: apt-get install g++")
    place, _, values = run("python", "-c", TRAINED).stdout.partition(" ")
    assert (Path(place).parents[1].name, values) == ("site-packages", "[2.0, 2.0, 2.0]\n")


NO_EXTRAS = """
import sys
for name in {names}:
    sys.modules[name] = None
sys.argv = {argv}
from tecoinfer_modelzoo.commands import teco
sys.exit(teco())
"""


@pytest.mark.parametrize(
    ("argv", "missing", "extra"),
    [
        (["teco", "check"], ["rich"], "check"),
        (["teco", "ops", "mine.onnx"], ["rich"], "check"),
        (["teco", "profile", "mine.onnx"], ["rich"], "check"),
        (["teco", "compare", "mine.onnx"], ["rich"], "check"),
        (["teco", "compare", "mine.onnx", "--html", "a.html"], ["jinja2"], "check"),
        (["teco", "dump", "full", "mine.onnx", "--out", "a.h5"], ["h5py"], "toolkit"),
    ],
)
def test_suggested_command_installs_from_the_wheel(
    argv: list[str], missing: list[str], extra: str, own: Path, run: Run, wheel: Path
) -> None:
    said = run("python", "-c", NO_EXTRAS.format(names=missing, argv=argv), code=2).stderr
    assert f'run: pip install "tecoinfer-modelzoo[{extra}] @ {wheel.as_uri()}"' in said
    assert "constraints.txt" not in said


TYPED = """
from engine import EngineSpec, open_engine
from model_config.results import CheckResult
from tecoexec.shapes import parse_shapes as parsed
from toolkit.arguments import Parser
from tecoinfer_modelzoo.formatting import plural

with open_engine("onnx", EngineSpec("mine.onnx", pass_path=None)) as engine:
    reveal_type(engine.run_time)
reveal_type(EngineSpec("mine.onnx").ckpt)
reveal_type(plural(2, "word"))

EngineSpec(b"mine.onnx")
CheckResult(nothing=1)
Parser(nothing=parsed(1))
"""


@pytest.mark.long
def test_type_hints_reach_a_users_script(own: Path, installed: Path) -> None:
    pytest.importorskip("mypy")
    (own / "script.py").write_text(TYPED)
    words = ["--python-executable", str(installed / "python"), "--no-incremental", "script.py"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MYPY"))}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=own, env=kept, capture_output=True, text=True, check=False
    )
    revealed = [line.partition("Revealed type is ")[2] for line in done.stdout.splitlines() if "Revealed" in line]
    assert revealed == ['"float"', '"pathlib.Path"', '"str"'], done.stdout
    errors = [line.split(": ")[0] for line in done.stdout.splitlines() if ": error: " in line]
    assert {int(error.split(":")[1]) for error in errors} == {13, 14, 15}, done.stdout
