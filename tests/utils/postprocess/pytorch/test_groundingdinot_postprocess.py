"""Scores of classes from scores of tokens, by the paper's rule."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from grounding_model import write_tokenizer
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError, InputError
from utils.postprocess.pytorch.groundingdinot import PostProcessCocoGrounding, get_tokenlizer
from utils.preprocess.pytorch.groundingdinot import preprocess
from utils.preprocess.text.captions import CaptionTokenizer

pytest.importorskip("tokenizers")

CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 3, "name": "hot dog"}, {"id": 90, "name": "toothbrush"}]
API: Any = SimpleNamespace(dataset={"categories": CATEGORIES})
MAP = np.zeros((3, 256))
MAP[0, 1] = MAP[1, 3] = MAP[1, 4] = MAP[2, 6] = MAP[2, 7] = 1  # [CLS] cat . hot dog . tooth ##brush . [SEP]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> CaptionTokenizer:
    return get_tokenlizer(write_tokenizer(tmp_path_factory.mktemp("bert")))


def random_outputs(images: int, queries: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    logits = np.full((images, queries, 256), -np.inf, np.float32)
    logits[:, :, :10] = rng.normal(0, 3, (images, queries, 10))
    return {"pred_logits": logits, "pred_boxes": rng.uniform(0.2, 0.6, (images, queries, 4)).astype(np.float32)}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), queries=st.integers(1, 40), most=st.integers(1, 130))
def test_scores_are_means_over_a_class_tokens(seed: int, queries: int, most: int, bert: CaptionTokenizer) -> None:
    outputs = random_outputs(2, queries, seed)
    found = PostProcessCocoGrounding(most, API, bert)(outputs, [[100, 200], [50, 80]])
    tokens = 1 / (1 + np.exp(-outputs["pred_logits"].astype(np.float64)))
    scores = tokens @ (MAP / MAP.sum(axis=1, keepdims=True)).T
    for one, mine, boxes, (height, width) in zip(
        found, scores, outputs["pred_boxes"], [(100, 200), (50, 80)], strict=True
    ):
        count = min(most, queries * 3)
        best = np.argsort(-mine.reshape(-1))[:count]
        assert np.allclose(one["scores"], mine.reshape(-1)[best], atol=1e-6)
        assert set(one["labels"].tolist()) <= {7, 3, 90}
        x, y, w, h = boxes[best // 3].T
        corners = np.stack([(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height], 1)
        assert np.allclose(one["boxes"], corners, atol=1e-3)
        assert one["labels"].tolist() == [CATEGORIES[place]["id"] for place in best % 3]


def test_cocos_own_classes(bert: CaptionTokenizer) -> None:
    post = PostProcessCocoGrounding(tokenlizer=bert)
    assert len(post.category_dict) == 80
    assert post.category_dict[-1] == {"id": 90, "name": "toothbrush"}
    logits = np.full((1, 2, 256), -np.inf, np.float16)
    logits[0, 1, 1] = 4
    best = {
        name: column[0]
        for name, column in post(
            {"pred_logits": logits, "pred_boxes": np.full((1, 2, 4), 0.5, np.float16)}, [[10, 20]]
        )[0].items()
    }
    assert best["labels"] == 1
    assert best["scores"] == pytest.approx(1 / (1 + np.exp(-4)), abs=1e-3)
    assert best["boxes"].tolist() == [5, 2.5, 15, 7.5]


@pytest.mark.torch
def test_tensors_in_tensors_out(bert: CaptionTokenizer) -> None:
    torch = pytest.importorskip("torch")
    outputs = random_outputs(1, 5)
    post = PostProcessCocoGrounding(coco_api=API, tokenlizer=bert)
    want = post(outputs, [[30, 40]])[0]
    tensors = {name: torch.from_numpy(array) for name, array in outputs.items()}
    got = post(tensors, torch.tensor([[30, 40]]))[0]
    assert all(isinstance(column, torch.Tensor) for column in got.values())
    assert all(np.array_equal(got[name].numpy(), want[name]) for name in want)


def test_swapped_sizes_of_files_just_read(bert: CaptionTokenizer, tmp_path: Path) -> None:
    """As in scripts for one image: preprocess(path), then Pillow's ``size`` of the image."""
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    outputs, post = random_outputs(1, 5), PostProcessCocoGrounding(coco_api=API, tokenlizer=bert)
    want = post(outputs, [[30, 40]])[0]["boxes"]
    other = post(outputs, [[40, 30]])[0]["boxes"]
    assert not np.array_equal(want, other)
    images, *_ = preprocess(tmp_path / "a.png", bert, "cat .", resize_shape=8)
    assert np.array_equal(post(outputs, [[30, 40]])[0]["boxes"], want)
    with pytest.warns(UserWarning, match="target_sizes .*width first"):
        turned = post(outputs, [[40, 30]])[0]["boxes"]
    assert np.array_equal(turned, want)
    assert post(outputs, [[80, 60]])[0]["boxes"].max() > want.max()  # other sizes than the file's are not swapped
    preprocess(images, bert, "cat .", resize_shape=8)  # forgets the files
    assert np.array_equal(post(outputs, [[40, 30]])[0]["boxes"], other)


def test_nan_finds_nothing(bert: CaptionTokenizer) -> None:
    outputs = random_outputs(2, 5)
    outputs["pred_logits"][1, 2, 3] = np.nan
    with pytest.warns(UserWarning, match="image 1 of the batch: .*not numbers"):
        found = PostProcessCocoGrounding(4, API, bert)(outputs, [[30, 40]] * 2)
    assert [len(one["scores"]) for one in found] == [4, 0]
    assert found[1]["boxes"].shape == (0, 4)


def test_inconsistent_arguments(bert: CaptionTokenizer) -> None:
    post = PostProcessCocoGrounding(coco_api=API, tokenlizer=bert)
    with pytest.raises(InputError, match="pass N x Q x T, N x Q x 4 and N x 2"):
        post(random_outputs(2, 5), [[30, 40]])
    short = random_outputs(1, 5)
    short["pred_logits"] = short["pred_logits"][:, :, :7]
    with pytest.raises(InputError, match=r"8 tokens, .* pred_logits only 7"):
        post(short, [[30, 40]])
    with pytest.raises(ConfigError, match="num_select 0"):
        PostProcessCocoGrounding(0, API, bert)
    with pytest.raises(ConfigError, match="needs tokenlizer"):
        PostProcessCocoGrounding(coco_api=API)
