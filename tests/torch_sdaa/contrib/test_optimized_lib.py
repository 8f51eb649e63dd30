"""The affinity library: equal bits, forward and backward, on both devices, in fewer launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from hypothesis import given, settings, strategies as st  # noqa: E402

from engine import ConfigError, DataError  # noqa: E402
from torch_sdaa.apex import optimizers  # noqa: E402
from torch_sdaa.contrib import optimized_lib as lib  # noqa: E402
from torch_sdaa.contrib.optimized_lib import plain  # noqa: E402
from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = pytest.mark.torch
DEVICES = ("cpu", "sdaa")


def _random(*sizes: int, seed: int = 0) -> Any:
    return torch.rand(sizes, generator=torch.Generator().manual_seed(seed))


def _boxes(count: int, seed: int = 0) -> Any:
    made = _random(count, 4, seed=seed) * 100
    return torch.cat([made[:, :2], made[:, :2] + made[:, 2:] / 3 + 0.5], 1)


def _backward(run: Callable[..., Any], *values: Any) -> list[Any]:
    """Return results and gradients, on the host."""
    leaves = [value.detach().clone().requires_grad_() for value in values]
    made = run(*leaves)
    made = list(made) if isinstance(made, tuple) else [made]
    weights = [_random(*each.shape, seed=50 + k).to(each) for k, each in enumerate(made)]
    return [each.detach().cpu() for each in (*made, *torch.autograd.grad(made, leaves, weights))]


def _same(left: list[Any], right: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


# ---------------------------------------------------------------------------------------------------------- shuffle


def _as_torchvision(x1: Any, x2: Any, groups: int, split: bool) -> Any:
    x = torch.cat((x1, x2), 1)
    batch, channels, height, width = x.shape
    x = x.view(batch, groups, channels // groups, height, width).transpose(1, 2).contiguous()
    x = x.view(batch, -1, height, width)
    return x.chunk(2, 1) if split else x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("first", "second", "groups"), [(4, 4, 2), (2, 6, 4), (5, 3, 8), (3, 5, 1)])
@pytest.mark.parametrize("split", [False, True])
def test_channel_shuffle(device: str, first: int, second: int, groups: int, split: bool) -> None:
    parts = [_random(2, size, 3, 5, seed=size).to(device) for size in (first, second)]
    module = lib.ChannelShuffle(first + second, groups, split).to(device)
    assert _same(_backward(module, *parts), _backward(lambda a, b: _as_torchvision(a, b, groups, split), *parts))
    assert not module.state_dict()


def test_channel_shuffle_is_one_launch_each_way() -> None:
    leaves = [_random(2, 4, 3, 3).to("sdaa").requires_grad_() for _ in range(2)]
    module = lib.ChannelShuffle(8)
    before = C.launches()
    made = module(*leaves)
    assert C.launches() - before == 1
    grads = [torch.ones_like(each) for each in made]
    before = C.launches()
    torch.autograd.backward(made, grads)
    torch.sdaa.synchronize()
    assert C.launches() - before == 1


def test_channel_shuffle_in_mixed_precision_and_twice_differentiated() -> None:
    x1, x2 = _random(1, 2, 2, 2).half().to("sdaa"), _random(1, 2, 2, 2, seed=1).to("sdaa")
    module = lib.ChannelShuffle(4, 2, False)
    assert torch.equal(module(x1, x2).cpu(), _as_torchvision(x1, x2, 2, False).cpu())
    double = [_random(1, 2, 2, 2, seed=k).double().requires_grad_() for k in range(2)]
    assert torch.autograd.gradgradcheck(lambda a, b: module(a, b).pow(2), double)


def test_channel_shuffle_errors() -> None:
    with pytest.raises(ConfigError, match=r"7 channels .*groups=2"):
        lib.ChannelShuffle(7)
    with pytest.raises(ConfigError, match=r"9 channels .*split_shuffle=False"):
        lib.ChannelShuffle(9, 3)
    with pytest.raises(ConfigError, match=r"inp=8\) got 4 and 2 channels"):
        lib.ChannelShuffle(8)(torch.ones(1, 4, 2, 2), torch.ones(1, 2, 2, 2))


# ------------------------------------------------------------------------------------------------------------ boxes


class _Boxes:
    """Boxes in the form of a detector's library."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


@pytest.mark.parametrize("device", DEVICES)
def test_pairwise_iou(device: str) -> None:
    left, right = _boxes(17).to(device), _boxes(9, 1).to(device)
    right[0] = left[3]
    left[5] = 0
    assert _same(_backward(lib.pairwise_iou, left, right), _backward(plain.pairwise_iou, left, right))
    assert torch.equal(lib.pairwise_iou(_Boxes(left), _Boxes(right)), lib.pairwise_iou(left, right))
    found = lib.pairwise_iou(left, right).cpu()
    assert (found[3, 0], found[5].max()) == (1, 0)
    assert lib.pairwise_iou(left[:0], right).shape == (0, 9)


def test_pairwise_iou_equals_torchvision_for_boxes_with_area() -> None:
    ops = pytest.importorskip("torchvision").ops
    left, right = _boxes(40), _boxes(30, 1)
    assert torch.equal(lib.pairwise_iou(left, right), ops.box_iou(left, right))


def test_pairwise_iou_errors() -> None:
    with pytest.raises(DataError, match=r"boxes2 .*N x 4 .*\(3, 5\)"):
        lib.pairwise_iou(torch.ones(2, 4), torch.ones(3, 5))
    with pytest.raises(DataError, match=r"boxes1 .* not list"):
        lib.pairwise_iou([[0, 0, 1, 1]], torch.ones(3, 4))


def _greedy(boxes: Any, scores: Any, most: float) -> list[int]:
    """Return the result of NMS by its definition, in numpy's float32 and a limit in float64."""
    rows, order = boxes.numpy(), np.argsort(-scores.numpy(), kind="stable")
    areas = (rows[:, 2] - rows[:, 0]) * (rows[:, 3] - rows[:, 1])
    kept: list[int] = []
    for k in order:
        overlaps = []
        for j in kept:
            wide = max(np.float32(0), min(rows[k, 2], rows[j, 2]) - max(rows[k, 0], rows[j, 0]))
            high = max(np.float32(0), min(rows[k, 3], rows[j, 3]) - max(rows[k, 1], rows[j, 1]))
            with np.errstate(invalid="ignore"):  # of two boxes without an area
                overlaps.append(float(wide * high / (areas[j] + areas[k] - wide * high)))
        if not any(overlap > most for overlap in overlaps):
            kept.append(int(k))
    return kept


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 99), st.sampled_from([0.1, 0.3, 0.5, 0.7]))
def test_nms_equals_its_definition(count: int, seed: int, most: float) -> None:
    boxes, scores = _boxes(count, seed), (_random(count, seed=seed + 1) * 8).round() / 8  # with ties
    assert plain.kept(boxes, scores, most).tolist() == _greedy(boxes, scores, most)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("own", [True, False], ids=["boxes of each class", "boxes of all"])
@pytest.mark.parametrize("limit", [0, 10**6], ids=["class by class", "at once"])
def test_detections_equal_the_plain_function(
    device: str, own: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_sdaa.contrib.optimized_lib import boxes as module

    monkeypatch.setattr(module, "_LIMIT_OF_DEVICES", limit)
    monkeypatch.setattr(module, "_TORCHVISION_LIMITS", {"cpu": limit})
    classes, proposals = 3, 40
    boxes, scores = _boxes(proposals * (classes if own else 1)), _random(proposals, classes + 1, seed=4)
    boxes = boxes.reshape(proposals, -1)
    boxes[7, 1], scores[9, 0] = math.nan, math.inf
    found, rows = lib.fast_rcnn_inference_single_image(boxes.to(device), scores.to(device), (80, 90), 0.4, 0.5, 12)
    wanted = []
    usable = [k for k in range(proposals) if k not in (7, 9)]
    for c in range(classes):
        chosen = [k for k in usable if scores[k, c] > 0.4]
        mine = boxes.view(proposals, -1, 4)[chosen, c if own else 0]
        mine = torch.stack([mine[:, k].clamp(0, (90, 80, 90, 80)[k]) for k in range(4)], 1)
        moved = mine if limit == 0 else mine + c * (_largest(boxes, scores, usable, own) + 1)
        wanted += [
            (scores[chosen[k], c].item(), c, usable.index(chosen[k]), mine[k])
            for k in _greedy(moved, scores[chosen, c], 0.5)
        ]
    wanted.sort(key=lambda each: -each[0])
    assert found.scores.tolist() == [each[0] for each in wanted[:12]]
    assert found.pred_classes.tolist() == [each[1] for each in wanted[:12]]
    assert rows.tolist() == [each[2] for each in wanted[:12]]
    assert torch.equal(found.pred_boxes.cpu(), torch.stack([each[3] for each in wanted[:12]]))
    assert {each.device.type for each in (*found, rows)} == {device}


def _largest(boxes: Any, scores: Any, usable: list[int], own: bool) -> Any:
    """Return the largest coordinate of the selected boxes, by which classes are offset."""
    most = torch.tensor([90.0, 80.0, 90.0, 80.0])
    found = [
        torch.minimum(boxes.view(len(boxes), -1, 4)[k, c if own else 0].clamp(min=0), most).max()
        for k in usable
        for c in range(scores.shape[1] - 1)
        if scores[k, c] > 0.4
    ]
    return torch.stack(found).max()


def test_no_detections_and_mismatched_shapes() -> None:
    boxes, scores = _boxes(5).to("sdaa"), _random(5, 3).to("sdaa")
    before = C.launches()
    found, rows = lib.fast_rcnn_inference_single_image(boxes, scores, (80, 90), 2.0, 0.5, 10)
    assert C.launches() - before == 1
    assert [tuple(each.shape) for each in (*found, rows)] == [(0, 4), (0,), (0,), (0,)]
    with pytest.raises(DataError, match=r"boxes \(5, 4\) and scores \(4, 3\)"):
        lib.fast_rcnn_inference_single_image(boxes, scores[:4], (80, 90), 0.5, 0.5, 10)


@pytest.mark.parametrize("own", [False, True])
def test_a_detector_without_proposals_and_one_whose_output_has_gradients(own: bool) -> None:
    found, rows = lib.fast_rcnn_inference_single_image(
        torch.empty(0, 12 if own else 4, device="sdaa"), torch.empty(0, 4, device="sdaa"), (80, 90), 0.1, 0.5, 10
    )
    assert [tuple(each.shape) for each in (*found, rows)] == [(0, 4), (0,), (0,), (0,)]
    boxes, scores = torch.cat([_boxes(9)] * (3 if own else 1), 1).to("sdaa"), _random(9, 4).to("sdaa")
    boxes[4] = float("nan")
    plainly, numbers = lib.fast_rcnn_inference_single_image(boxes, scores, (30, 40), 0.3, 0.5, 10)
    boxes.requires_grad_(), scores.requires_grad_()
    found, rows = lib.fast_rcnn_inference_single_image(boxes, scores, (30, 40), 0.3, 0.5, 10)
    assert all(torch.equal(a, b) for a, b in zip((*found, rows), (*plainly, numbers), strict=True))
    (found.pred_boxes.sum() + found.scores.sum()).backward()
    assert scores.grad.sum() == len(rows)
    assert 0 < boxes.grad.sum() <= 4 * len(rows)


@pytest.mark.parametrize("shape", [(9,), (9.5, 9), "ab", None])
def test_an_invalid_image_shape_is_an_error(shape: Any) -> None:
    with pytest.raises(DataError, match=r"image_shape .*\(height, width\)"):
        lib.fast_rcnn_inference_single_image(torch.ones(2, 4), torch.ones(2, 3), shape, 0.5, 0.5, 1)
    with pytest.raises(DataError, match=r"boxes and scores .*list and Tensor"):
        lib.fast_rcnn_inference_single_image([1], torch.ones(2, 3), (9, 9), 0.5, 0.5, 1)


# -------------------------------------------------------------------------------------------- loader and optimizers


def test_preloader_raises_in_place_of_the_batch_and_cleans_up() -> None:
    def batches() -> Iterator[Any]:
        yield {"x": torch.ones(2)}
        yield None
        raise KeyError("third")

    seen: list[Any] = []
    loader = lib.PreLoader(batches())
    with pytest.raises(KeyError, match="third"):
        seen.extend(loader)
    ahead = lib.PreLoader([torch.zeros(2), torch.ones(2)])
    for batch in ahead:
        seen.append(batch)
        break
    assert [one.sum().item() for one in ahead] == [0.0, 2.0]
    loader = lib.PreLoader(batches())
    one, two = loader.next(), loader.next()
    assert (one["x"].device.type, two) == ("sdaa", None)


def test_preloader_returns_batches_and_overlaps_copies() -> None:
    batches = [{"x": _random(4, 3, 64, 64, seed=k), "name": str(k), "y": (torch.tensor([k]), k)} for k in range(4)]
    loader = lib.PreLoader(batches)
    for _ in range(2):  # an epoch, and another
        seen = list(loader)
        assert [each["name"] for each in seen] == ["0", "1", "2", "3"]
        assert all(each["x"].device == torch.device("sdaa:0") for each in seen)
        assert all(torch.equal(each["x"].cpu(), mine["x"]) for each, mine in zip(seen, batches, strict=True))
        assert [each["y"][1] for each in seen] == [0, 1, 2, 3]
    assert (len(loader), loader.next()["name"]) == (4, "0")
    weight = _random(3 * 64 * 64, 256).to("sdaa")
    times = []
    for source in ((batch["x"].to("sdaa") for batch in batches), (batch["x"] for batch in lib.PreLoader(batches))):
        torch.sdaa.synchronize()
        begun = C.times(0)["now"]
        for x in source:
            x.flatten(1) @ weight
        torch.sdaa.synchronize()
        times.append(C.times(0)["now"] - begun)
    assert times[1] < times[0]


def test_preloader_normalises_on_the_device_and_ends() -> None:
    images = [(_random(2, 3, 4, 4, seed=k) * 255).to(torch.uint8) for k in range(2)]
    mean, std = [120.0, 110.0, 100.0], [60.0, 50.0, 40.0]
    loader = lib.PreLoader([(x, k) for k, x in enumerate(images)], "sdaa:1", mean, std)
    for k, wanted in enumerate(images):
        x, number = loader.next()
        expected = (wanted.float() - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
        assert (number, x.device.index) == (k, 1)
        assert torch.equal(x.cpu(), expected)
    assert loader.next() is None
    assert list(lib.PreLoader([])) == []


@pytest.mark.parametrize("batch", [torch.ones(3, 3), torch.ones(2, 4, 2, 2), 3])
def test_preloader_normalises_images_only(batch: Any) -> None:
    with pytest.raises(DataError, match="PreLoader with mean and std"):
        next(iter(lib.PreLoader([batch], mean=(1.0, 2.0, 3.0), std=(1.0, 1.0, 1.0))))


def test_preloader_errors() -> None:
    with pytest.raises(ConfigError, match="'sdaa:0', not to 'cpu'"):
        lib.PreLoader([], "cpu")
    with pytest.raises(ConfigError, match="both mean and std"):
        lib.PreLoader([], mean=[1.0])


def test_names_of_the_library() -> None:
    assert all(getattr(lib, name) is getattr(optimizers, name) for name in lib.__all__ if "Fused" in name)
    with pytest.raises(AttributeError, match="no 'PreLoadr'; did you mean 'PreLoader'"):
        lib.PreLoadr  # noqa: B018
