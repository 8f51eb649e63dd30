# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""The export script of every classification folder."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
if not find_spec("torchvision"):
    pytest.skip("torchvision is not installed", allow_module_level=True)

import onnx

from utils.export.scripts.classifier import find_classifier
from utils.imagenet_classes import WNIDS
from utils.stored import ModelMetadata

pytestmark = pytest.mark.torch

ANY = "classification/imagenet/export_onnx.py"
SMALLEST = (
    ("squeezenet1_1", 64),
    pytest.param("alexnet", 64, marks=pytest.mark.long),
    pytest.param("mnasnet0_5", 64, marks=pytest.mark.long),
    pytest.param("swin_v2_t", 64, marks=pytest.mark.long),
)
"""The smallest network of each family without another test, and a small size."""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("arch", "size"), SMALLEST)
def test_the_smallest_of_a_family(
    arch: str, size: int, script: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--arch", arch, "--weights", "random", "--input_size", size, "--forms", "float16_dyn")
    assert script(ANY, *options, "--out", tmp_path) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "random weights: for functional and speed checks only"
    assert "largest relative error" in last
    assert [path.name for path in tmp_path.iterdir()] == [f"{arch}_float16_dyn.onnx"]
    model = onnx.load(tmp_path / f"{arch}_float16_dyn.onnx")
    stored = ModelMetadata({prop.key: prop.value for prop in model.metadata_props})
    assert stored.json("class_ids") == list(WNIDS)
    assert stored.image.crop == (size, size)
    dims = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims[0] == "batch"
    assert isinstance(dims[2], str) == (arch not in ("alexnet", "swin_v2_t"))


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("imagenet", ["--arch", "resnet51"], "unknown arch 'resnet51'; did you mean 'resnet50'"),
        ("imagenet", ["--arch", "timm/resnet51"], "unknown arch 'timm/resnet51'; did you mean 'resnet5"),
        ("vgg16", ["--arch", "resnet18"], "this folder is for vgg11, vgg13, vgg16"),
        ("swin_t", ["--arch", "swin_x"], "unknown arch 'swin_x'; did you mean 'swin_"),
        ("vgg16", ["--weights", "IMAGENET1K_FEATURES"], "weights IMAGENET1K_FEATURES"),
        ("vit_b_16", ["--weights", "random", "--input_size", "65"], "vit_b_16 cannot be built for --input_size 65 65"),
        ("vit_b_16", ["--weights", "random", "--input_size", "64", "96"], "vit_b_16 takes square images"),
        (
            "imagenet",
            ["--arch", "maxvit_t", "--weights", "random", "--input_size", "64"],
            "maxvit_t cannot be built for",
        ),
        ("imagenet", ["--input_size", "8"], "--input_size 8 one or two numbers >= 32"),
        ("googlenet", ["--weights", "none.safetensors"], "none.safetensors does not exist"),
    ],
)
def test_invalid_flags_exit_with_2(
    folder: str,
    options: list[str],
    message: str,
    script: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script(f"classification/{folder}/export_onnx.py", *options, "--out", tmp_path) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arch", ["googlenet", "inception_v3"])
def test_published_inception_weights_transform_their_input(arch: str, tmp_path: Path) -> None:
    """A published file has auxiliary heads, and its network converts from ImageNet's normalization."""
    from utils.export.networks.torchvision_models import import_torchvision

    models = import_torchvision().models
    torch.manual_seed(0)
    published = models.get_model(arch, weights=None, init_weights=False, transform_input=True).eval()
    torch.save(published.state_dict(), tmp_path / "mine.pth")
    found = find_classifier(arch, str(tmp_path / "mine.pth"))
    x = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        assert torch.equal(found.module(x), published(x))
    assert (found.images.resize, found.size) == ((342, (299, 299)) if arch == "inception_v3" else (256, (224, 224)))


@pytest.mark.long
@pytest.mark.slow
def test_positions_of_trained_weights_are_interpolated(tmp_path: Path) -> None:
    native = find_classifier("vit_b_32", "random").module
    torch.save(native.state_dict(), tmp_path / "mine.pth")
    found = find_classifier("vit_b_32", str(tmp_path / "mine.pth"), (64, 64))
    assert found.module.encoder.pos_embedding.shape == (1, 5, 768)
    assert torch.equal(found.module.heads.head.weight, native.heads.head.weight)
    with torch.no_grad():
        assert found.module(torch.randn(1, 3, 64, 64)).shape == (1, 1000)
