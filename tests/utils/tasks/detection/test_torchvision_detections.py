"""SSD, RetinaNet and FCOS: images in and detections out are torchvision's own, step by step and as a whole."""

# ruff: noqa: E402 - what is imported later needs what importorskip looks for
from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
if find_spec("torchvision") is None:
    pytest.skip("needs torchvision", allow_module_level=True)

from constructed_models import bound, options
from PIL import Image

from engine import TensorSpec
from utils.export.networks.torchvision_detectors import detector
from utils.export.networks.torchvision_models import import_torchvision
from utils.postprocess.image.nms import Detections
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model

pytestmark = pytest.mark.torch

FLOAT = np.dtype(np.float32)


def plain_nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """torchvision::nms as its documentation has it; its compiled form is missing beside a CPU torch."""
    order = scores.argsort(descending=True, stable=True).tolist()
    sides = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0)
    area, kept = sides[:, 0] * sides[:, 1], []
    alive = torch.ones(len(boxes), dtype=torch.bool)
    for i in order:
        if not alive[i]:
            continue
        kept.append(i)
        low, high = torch.maximum(boxes[i, :2], boxes[:, :2]), torch.minimum(boxes[i, 2:], boxes[:, 2:])
        common = (high - low).clamp(min=0).prod(dim=1)
        alive &= ~(common / (area[i] + area - common) > iou_threshold)
    return torch.tensor(kept, dtype=torch.int64)


@pytest.fixture(scope="module", autouse=True)
def _nms() -> Iterator[None]:
    import_torchvision()
    library = torch.library.Library("torchvision", "IMPL")
    try:
        torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (NotImplementedError, RuntimeError):
        library.impl("nms", plain_nms, "CPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchvision.ops.boxes._assert_has_ops", lambda: None)  # there is one now
        yield
    library._destroy()


def images(folder: Path, sizes: list[tuple[int, int]]) -> list[Path]:
    """Write smooth random images of some widths and heights."""
    rng, paths = np.random.default_rng(7), []
    for i, size in enumerate(sizes):
        small = Image.fromarray(rng.integers(0, 256, (9, 12, 3)).astype(np.uint8))
        path = folder / f"{i}.png"
        small.resize(size, Image.Resampling.BICUBIC).save(path)
        paths.append(path)
    return paths


def tensors(paths: list[Path]) -> list[Any]:
    return [torch.from_numpy(np.asarray(Image.open(path)).transpose(2, 0, 1) / np.float32(255)) for path in paths]


def whole(arch: str, **given: Any) -> Any:
    """Return torchvision's own model with seeded weights, whose answers are spread as a trained one's are."""
    torch.manual_seed(3)
    model = import_torchvision().models.get_model(arch, weights=None, weights_backbone=None, num_classes=6, **given)
    with torch.no_grad():
        for name, value in model.head.named_parameters():
            if name.endswith("bias"):
                value.normal_(std=1.0)
            elif "cls_logits" in name:
                value.mul_(3.0)
        for norm in model.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):
                norm.momentum = 1.0  # the statistics of the one batch that follows
        noise = (torch.rand(4, 3, 128 if given else 320, 320) - 0.5) / max(model.transform.image_std)
        found = model.train().head(list(model.backbone(noise).values()))
    shifts = {name: (one.mean(), one.std()) for name, one in found.items()}

    def spread(module: Any, inputs: Any, outputs: dict[str, Any]) -> dict[str, Any]:
        return {name: 2 * (one - shifts[name][0]) / shifts[name][1] for name, one in outputs.items()}

    if not given:  # an SSD's head is called as a whole by both sides
        model.head.register_forward_hook(spread)
    return model.eval()


def described(made: Any, size: tuple[int | None, int | None]) -> Model:
    """Return what an engine would say of a detector's export."""
    import json

    scale = {"mean": list(made.mean), "std": list(made.std)}
    metadata = {"preprocess": json.dumps(scale), "detection": json.dumps(dict(made.note))}
    outputs = tuple(TensorSpec(name, FLOAT, (None,)) for name in made.outputs)
    symbols = ("batch", None, "height", "width")
    return Model(
        Path("m.onnx"), (TensorSpec("input", FLOAT, (None, 3, *size), 0, symbols),), outputs, metadata=metadata
    )


def through(model: Any, made: Any, module: Any, paths: list[Path], size: tuple[int | None, int | None]) -> list[Any]:
    """Return our detections, and compare what goes into the network with torchvision's."""
    described_model, opt = described(made, size), options(Detection, "valid")
    prepared = Detection(opt).bind(described_model).prepare(paths)
    (array,) = bound(Detection, described_model).collate([prepared])
    wanted = model.transform(tensors(paths))[0].tensors.numpy()
    assert array.shape == wanted.shape
    # 1e-4 of the range of levels: places between pixels are float32 numbers
    np.testing.assert_allclose(array, wanted, atol=1e-4 * (1 / min(made.std)))
    with torch.no_grad():
        outputs = [one.numpy() for one in module(torch.from_numpy(array))]
    return Detection(opt).bind(described_model).decode(outputs, prepared.contexts)


def assert_same(found: list[Detections], wanted: list[dict[str, Any]], shift: int) -> None:
    assert all(len(one["scores"]) >= 20 for one in wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert len(mine.scores) == len(theirs["scores"])
        np.testing.assert_allclose(mine.scores, theirs["scores"].numpy(), rtol=2e-4)
        order = _order(mine.scores, mine.classes, mine.boxes)
        labels = theirs["labels"].numpy() - shift
        other = _order(theirs["scores"].numpy(), labels, theirs["boxes"].numpy())
        np.testing.assert_array_equal(mine.classes[order], labels[other])
        np.testing.assert_allclose(mine.boxes[order], theirs["boxes"].numpy()[other], atol=0.02)


def _order(scores: Any, classes: Any, boxes: Any) -> Any:
    """Return an order in which near-equal scores of two computations stand alike."""
    return np.lexsort((boxes[:, 3].round(0), boxes[:, 0].round(0), classes))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch", [pytest.param("ssd300_vgg16", marks=pytest.mark.long), "ssdlite320_mobilenet_v3_large"]
)
def test_ssd_finds_what_torchvision_finds(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = whole(arch)
    made = _made(arch, model, monkeypatch)
    side = model.transform.fixed_size[0]
    paths = images(tmp_path, [(400, 300), (90, 250)])
    found = through(model, made, made.module, paths, (side, side))
    with torch.no_grad():
        assert_same(found, model(tensors(paths)), 1)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["retinanet_resnet50_fpn", "fcos_resnet50_fpn", "retinanet_resnet50_fpn_v2"])
def test_pyramids_find_what_torchvision_finds(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images of other proportions share a batch: one is padded, and its boxes end at its own edges."""
    model = whole(arch, min_size=160, max_size=288, score_thresh=0.05, topk_candidates=150)
    made = _made(arch, model, monkeypatch, [160])
    made.note["fit"] = {**made.note["fit"], "shorter": 160, "longer": 288}
    paths = images(tmp_path, [(400, 300), (90, 250)])
    found = through(model, made, made.module, paths, (None, None))
    with torch.no_grad():
        assert_same(found, model(tensors(paths)), 0)


def _made(arch: str, model: Any, monkeypatch: pytest.MonkeyPatch, size: list[int] | None = None) -> Any:
    """Return what would be exported of this very model."""
    from utils.export.networks import torchvision_detectors

    monkeypatch.setattr(torchvision_detectors, "_seeded", lambda make, example: model)
    return detector(arch, "random", size, classes=6)
