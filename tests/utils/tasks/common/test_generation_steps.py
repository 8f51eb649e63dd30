"""Decoding with planned caches: what a chunk, a plan or a batch is made of never changes an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")

from tiny_decoders import called, described, network  # noqa: E402

from engine import DataError, ModelError, TensorSpec, Timeline  # noqa: E402
from utils.postprocess.text.sampling import Chooser, Sampling  # noqa: E402
from utils.tasks.common.generation import FIRST, NEXT, Decoder, Limits, Plans, generate  # noqa: E402
from utils.tasks.model import Model  # noqa: E402
from utils.tasks.text_generation.task import costs, windows  # noqa: E402

pytestmark = pytest.mark.torch
RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 299, 40)


def decoder(model: Model | None = None) -> Decoder:
    return Decoder(called(network()), model or described())


@torch.no_grad()
def whole(ids: Sequence[int] | Any) -> Any:
    return network().whole(torch.from_numpy(np.asarray(ids))[None])[0].numpy()


def greedy(prompt: Any, count: int) -> list[int]:
    """Return what follows, computed anew for each token, without a cache."""
    ids = list(map(int, prompt))
    for _ in range(count):
        ids.append(int(whole(ids)[-1].argmax()))
    return ids[len(prompt) :]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 39), max_size=4, unique=True))
def test_any_split_of_a_prompt_gives_the_same_logits(cuts: list[int]) -> None:
    step, cache = decoder(), None
    for part in np.split(TEXT, sorted(cuts)):
        logits, cache = step([part], cache)
    np.testing.assert_allclose(logits[0], whole(TEXT)[-1], rtol=1e-4, atol=1e-5)
    assert cache is not None
    assert cache.lengths.tolist() == [40]
    assert cache.slots == 64


@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    chunks=st.sampled_from([(1,), (1, 3), (5,), (1, 64)]),
    slots=st.sampled_from([(64,), (31, 33, 64), (1, 2, 4, 8, 16, 32, 64)]),
)
def test_batches_and_plans_do_not_change_results(
    lengths: list[int], chunks: tuple[int, ...], slots: tuple[int, ...]
) -> None:
    prompts = [TEXT[40 - count :] for count in lengths]
    model = described({"tokens": chunks, "slots": slots})
    made = generate(decoder(model), prompts, Limits(6), Chooser(Sampling()))
    assert [one.ids for one in made] == [greedy(prompt, 6) for prompt in prompts]
    assert {one.why for one in made} == {"limit"}


def test_finished_samples_leave_the_batch() -> None:
    prompts = [TEXT[:5], TEXT[5:8], TEXT[8:20]]
    wanted = [greedy(prompt, 9) for prompt in prompts]
    stop = wanted[1][3]
    line = Timeline()
    made = generate(decoder(), prompts, Limits([9, 9, 2], frozenset([stop])), Chooser(Sampling()), line)
    for one, ids, most in zip(made, wanted, (9, 9, 2), strict=True):
        ends = ids.index(stop) if stop in ids[:most] else most
        assert one.ids == ids[:ends]
        assert one.why == ("stop" if ends < most else "limit")
    assert line.samples(FIRST) == 3
    assert line.samples(FIRST) + line.samples(NEXT) == sum(one.counted for one in made)


def test_new_tokens_may_end_a_text() -> None:
    wanted = greedy(TEXT[:5], 4)
    limits = Limits(9, ended=lambda ids: len(ids) == 4)
    (one,) = generate(decoder(), [TEXT[:5]], limits, Chooser(Sampling()))
    assert (one.ids, one.why) == (wanted, "ended")


def test_scores_are_model_probabilities() -> None:
    (one,) = generate(decoder(), [TEXT[:5]], Limits(3), Chooser(Sampling()))
    logits = torch.from_numpy(whole([*TEXT[:5].tolist(), *one.ids])).log_softmax(-1)
    assert one.score == pytest.approx(sum(float(logits[4 + i, token]) for i, token in enumerate(one.ids)), rel=1e-4)


def test_nan_ends_one_sample_only() -> None:
    inner = called(network())

    def call(arrays: list[Any]) -> list[Any]:
        outputs = inner(arrays)
        outputs[0][arrays[0][:, 0] == TEXT[0]] = np.nan
        return outputs

    made = generate(Decoder(call, described()), [TEXT[:1], TEXT[1:4]], Limits(3), Chooser(Sampling()))
    assert made[0].why == "nan"
    assert np.isnan(made[0].score)
    assert made[1].ids == greedy(TEXT[1:4], 3)


def test_text_longer_than_the_largest_plan_is_rejected() -> None:
    with pytest.raises(DataError, match=r"9 tokens .*8 slots.*--lengths"):
        decoder(described({"tokens": (1, 4), "slots": (4, 8)}))([TEXT[:9]], None)


def test_other_models_are_rejected() -> None:
    model = described()
    with pytest.raises(ModelError, match=r"0 .*4 outputs"):
        Decoder(called(network()), Model(model.ckpt, model.inputs[:3], model.outputs))
    with pytest.raises(ModelError, match="position_ids"):
        Decoder(called(network()), Model(model.ckpt, (model.inputs[0], *model.inputs[3:]), model.outputs))
    odd = TensorSpec("pixels", np.dtype(np.float32), (None, 3), 0)
    with pytest.raises(ModelError, match="input 'pixels'"):
        Decoder(called(network()), Model(model.ckpt, (*model.inputs, odd), model.outputs))


def test_a_full_cache_output_is_read_at_its_end() -> None:
    inner, model = called(network()), described()

    def call(arrays: list[Any]) -> list[Any]:
        ids, places, mask, *past = arrays
        assert mask.shape == (ids.shape[0], past[0].shape[2] + ids.shape[1])
        logits, *new = inner([ids, places, mask[:, : past[0].shape[2]].astype(np.float32), *past])
        return [logits, *(np.concatenate(pair, axis=2) for pair in zip(past, new, strict=True))]

    mask = TensorSpec("attention_mask", np.dtype(np.int64), (None, None), 0, ("batch", "total"))
    growing = Model(model.ckpt, (*model.inputs[:2], mask, *model.inputs[3:]), model.outputs, dims=model.dims)
    (one,) = generate(Decoder(call, growing), [TEXT[:20]], Limits(5), Chooser(Sampling()))
    assert one.ids == greedy(TEXT[:20], 5)


def test_constants_follow_their_samples() -> None:
    inner, model = called(network()), described()
    states = TensorSpec("encoder_states", np.dtype(np.float32), (None, 2), 0, ("batch", None))
    given: list[Any] = []

    def call(arrays: list[Any]) -> list[Any]:
        given.append(arrays[-1][:, 0].tolist())
        return inner(arrays[:-1])

    wide = Model(model.ckpt, (*model.inputs, states), model.outputs, dims=model.dims)
    step = Decoder(call, wide, constants={"encoder_states": np.array([[1, 1], [2, 2], [3, 3]], np.float32)})
    generate(step, [TEXT[:2], TEXT[:3], TEXT[:4]], Limits([1, 3, 2]), Chooser(Sampling()))
    assert given == [[1.0, 2.0, 3.0], [2.0, 3.0], [2.0]]


@settings(max_examples=60, deadline=None)
@given(tokens=st.integers(2, 60), size=st.integers(2, 20), stride=st.integers(1, 19))
def test_windows_predict_every_token_once(tokens: int, size: int, stride: int) -> None:
    stride = min(stride, size - 1)
    found = windows(tokens, size, stride)
    predicted = [place for one in found for place in range(one.first, one.end)]
    assert predicted == list(range(1, tokens))
    assert all(one.end - one.begin <= size and one.first > one.begin for one in found)


@pytest.mark.parametrize(("size", "stride"), [(64, 32), (16, 8), (10, 9)])
def test_costs_are_those_of_whole_windows(size: int, stride: int) -> None:
    texts = [TEXT, TEXT[:7], TEXT[3:20]]
    wanted = []
    for text in texts:
        cost = 0.0
        for one in windows(len(text), size, stride):
            logs = torch.from_numpy(whole(text[one.begin : one.end])).log_softmax(-1)
            cost -= sum(float(logs[j - one.begin - 1, text[j]]) for j in range(one.first, one.end))
        wanted.append(cost)
    assert costs(decoder(), texts, size, stride) == pytest.approx(wanted, rel=1e-5)


def test_plans() -> None:
    plans = Plans((8, 16), (1, 4))
    assert [plans.room(count) for count in (1, 8, 9)] == [8, 8, 16]
    assert [plans.chunk(count) for count in (1, 2, 4, 9)] == [1, 4, 4, 4]
