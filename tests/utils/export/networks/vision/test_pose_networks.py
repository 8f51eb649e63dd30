# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Networks for key points by name: sizes of the published ones, files equal to PyTorch, metadata, what is refused."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
if not find_spec("torchvision") or not find_spec("timm"):
    pytest.skip("needs torchvision and timm", allow_module_level=True)

from exported_networks import check_metric, check_outputs, exported, parameters

from engine import ConfigError, DataError, ModelError
from utils.export.networks.vision.architecture import Asked, network
from utils.export.networks.vision.categories import PERSONS, Categories, keypoint_categories
from utils.export.networks.vision.pose_networks import ARCHS
from utils.export.scripts.image_network import KEYPOINTS, export_network
from utils.tasks.keypoints.task import Keypoints
from utils.tasks.templates.sample_images import fill_figures

pytestmark = pytest.mark.torch

PUBLISHED = {
    "simple_baseline_resnet50": 34.0,
    "simple_baseline_resnet101": 53.0,
    "simple_baseline_resnet152": 68.6,
    "hrnet_w32": 28.5,
    "hrnet_w48": 63.6,
    "rtmpose_t": 3.34,
    "rtmpose_s": 5.47,
    "rtmpose_m": 13.59,
    "rtmpose_l": 27.66,
    "yolov8n_pose": 3.295470,
    "yolov8s_pose": 11.6,
    "yolov8m_pose": 26.4,
    "yolov8l_pose": 44.4,
    "yolov8x_pose": 69.4,
}
"""Millions of parameters by the papers of SimpleBaseline and HRNet, MMPose's page of RTMPose, and Ultralytics."""

SIZES = {
    "simple_baseline_resnet18": (64, 32),
    "hrnet_w32": (64, 64),
    "rtmpose_t": (64, 96),
    "yolov8n_pose": (64, 96),
}


@pytest.mark.parametrize("arch", PUBLISHED)
def test_as_many_parameters_as_published(arch: str) -> None:
    found = ARCHS[arch]
    assert parameters(found, Asked(found.size, PERSONS)) / 1e6 == pytest.approx(PUBLISHED[arch], rel=0.01)


@pytest.mark.parametrize(
    ("arch", "key", "shape"),
    [
        ("simple_baseline_resnet50", "deconv_layers.0.weight", (2048, 256, 4, 4)),
        ("simple_baseline_resnet50", "final_layer.weight", (17, 256, 1, 1)),
        ("hrnet_w32", "stage4.2.fuse_layers.0.3.0.weight", (32, 256, 1, 1)),
        ("hrnet_w32", "transition3.3.0.0.weight", (256, 128, 3, 3)),
        ("hrnet_w32", "final_layer.weight", (17, 32, 1, 1)),
        ("rtmpose_m", "backbone.stage4.2.blocks.0.conv2.depthwise_conv.conv.weight", (384, 1, 5, 5)),
        ("rtmpose_m", "head.gau.uv.weight", (1152, 256)),
        ("rtmpose_m", "head.cls_y.weight", (512, 256)),
        ("yolov8n_pose", "model.22.cv4.0.0.conv.weight", (51, 64, 3, 3)),
        ("yolov8n_pose", "model.22.dfl.conv.weight", (1, 16, 1, 1)),
        ("yolov8n_pose", "model.4.m.1.cv2.bn.running_var", (32,)),
    ],
)
def test_weights_have_the_published_names(arch: str, key: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        state = ARCHS[arch].build(Asked(ARCHS[arch].size, PERSONS)).state_dict()
    assert state[key].shape == shape
    if arch == "hrnet_w32":  # only the finest output is fused
        assert not any(key.startswith("stage4.2.fuse_layers.1") for key in state)


@pytest.mark.slow
@pytest.mark.parametrize("arch", SIZES)
@pytest.mark.long
def test_outputs_equal_pytorch_on_every_target(arch: str, tmp_path: Path) -> None:
    found = network(ARCHS, arch, "random", SIZES[arch], categories=PERSONS)
    check_outputs(found, exported(found, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["simple_baseline_resnet18", "rtmpose_t", "yolov8n_pose"])
def test_the_metric_of_a_data_set_equals_pytorchs(arch: str, tmp_path: Path) -> None:
    fill_figures(tmp_path)
    categories = keypoint_categories(tmp_path / "data" / "val.json")
    assert categories == Categories(("figure",), ("red", "green", "blue"), ((0, 1), (1, 2)))
    found = network(ARCHS, arch, "random", [64], categories=categories)
    # a wide tolerance, with which the points of random weights count in part
    check_metric(Keypoints, found, exported(found, tmp_path), tmp_path / "data", sigmas=[0.5])


def test_a_file_of_weights_is_loaded(tmp_path: Path) -> None:
    source = network(ARCHS, "simple_baseline_resnet18", "random", [32], categories=PERSONS)
    state = {f"module.{key}": value for key, value in source.module.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "mine.pth")
    found = network(ARCHS, "simple_baseline_resnet18", str(tmp_path / "mine.pth"), [32], categories=PERSONS)
    assert found.weights == "mine.pth"
    image = torch.ones(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(found.module(image), source.module(image))


def test_weights_that_do_not_fit_are_one_line_with_the_first_key(tmp_path: Path) -> None:
    source = network(ARCHS, "simple_baseline_resnet18", "random", [32], categories=Categories(("dog",), ("a", "b")))
    torch.save(source.module.state_dict(), tmp_path / "dogs.pth")
    with pytest.raises(ModelError, match=r"dogs\.pth .*of another shape final_layer\.weight, final_layer\.bias") as got:
        network(ARCHS, "simple_baseline_resnet18", str(tmp_path / "dogs.pth"), [32], categories=PERSONS)
    assert "\n" not in str(got.value)
    with pytest.raises(ModelError, match=r"dogs\.pth .*missing layer1\.0\.conv3\.weight"):
        network(ARCHS, "simple_baseline_resnet50", str(tmp_path / "dogs.pth"), [32], categories=PERSONS)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--arch", "hrnet_w33"], ConfigError, r"unknown arch 'hrnet_w33'; did you mean 'hrnet_w32'"),
        (["--weights", "DEFAULT"], ConfigError, "unknown weights 'DEFAULT' for yolov8n_pose; use random, or"),
        (["--weights", "none.pth"], ModelError, "none.pth does not exist"),
        (
            ["--input_size", "100"],
            ConfigError,
            "--input_size 100: yolov8n_pose takes one or two positive multiples of 32",
        ),
        (["--input_size", "32", "32", "32"], ConfigError, "--input_size 32 32 32"),
        (["--batch_size", "0"], ConfigError, "--batch_size 0"),
        (["--annotations", "none.json"], DataError, "none.json"),
    ],
)
def test_invalid_flags_are_one_line(words: list[str], error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message) as got:
        export_network("x", tmp_path, KEYPOINTS, ["--weights", "random", *words])
    assert "\n" not in str(got.value)


def test_invalid_annotations_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"images": [], "annotations": [], "categories": []}')
    with pytest.raises(DataError, match=r"empty\.json: 'categories' is empty"):
        keypoint_categories(tmp_path / "empty.json")
    named = [{"id": place, "name": name, "keypoints": ["a"]} for place, name in enumerate(("cat", "dog"))]
    (tmp_path / "two.json").write_text(json.dumps({"images": [], "annotations": [], "categories": named}))
    words = ["--weights", "random", "--annotations", str(tmp_path / "two.json"), "--arch", "rtmpose_t"]
    with pytest.raises(ConfigError, match="has 2 categories: a network of one object's points takes 1"):
        export_network("x", tmp_path, KEYPOINTS, words)


@pytest.mark.slow
def test_a_script_stores_points_labels_and_preprocessing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx

    words = ["--arch", "simple_baseline_resnet18", "--weights", "random", "--input_size", "64", "32"]
    assert export_network("x", tmp_path, KEYPOINTS, [*words, "--exporter", "torchscript"]) == 0
    assert capsys.readouterr().out.startswith("random weights: for functional and speed checks only\n")
    files = ["", "_dyn", "_float16_dyn"]
    for file in files:
        made = onnx.load(tmp_path / f"simple_baseline_resnet18{file}.onnx", load_external_data=False)
        stored = {one.key: one.value for one in made.metadata_props}
        note = json.loads(stored["detection"])
        assert (note["layout"], note["point_names"][0], note["alignment"]) == ("heatmaps", "nose", "corner")
        assert json.loads(stored["class_labels"]) == ["person"]
        assert json.loads(stored["preprocess"])["crop_shape"] == [64, 32]
        first = made.graph.input[0].type.tensor_type.shape.dim[0]
        assert (first.dim_value == 1) if not file else (first.dim_param == "batch")
