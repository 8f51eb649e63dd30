"""Text generation from end to end: prompts to texts as transformers writes them, perplexity as torch computes it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
pytest.importorskip("tokenizers")

from constructed_models import bound  # noqa: E402
from tiny_decoders import FORM, described, exported, network  # noqa: E402

from engine import ConfigError, DataError, EngineSpec, ModelError, open_engine  # noqa: E402
from utils.metrics.text.perplexity import Score  # noqa: E402
from utils.pipeline import answers, valid  # noqa: E402
from utils.preprocess.text.tokens import Tokens  # noqa: E402
from utils.tasks.model import Model  # noqa: E402
from utils.tasks.text_generation.task import (  # noqa: E402
    Answer,
    Notes,
    Prompt,
    TextGeneration,
    plans,
    windows,
)

pytestmark = pytest.mark.torch
TEXTS = ["Once upon a time", "The", "there was a small town by the sea", "\u00e9t\u00e9!"]


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("decoder"))


@pytest.fixture
def run(
    ckpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    data = tmp_path / "texts.jsonl"
    data.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in TEXTS), encoding="utf-8")

    def called(script: str, *words: object, target: str = "onnx") -> tuple[int, Any, str]:
        out = tmp_path / f"{script}.json"
        line = ["example.py", "--target", target, "--json", out, *words]
        monkeypatch.setattr(sys, "argv", [str(word) for word in line])
        given: dict[str, Any] = {"ckpt": ckpt, "data_path": data, "batch_size": 4, "lengths": [16, 32, 64]}
        if script == "valid":
            code = valid.main("", TextGeneration, **given)
        else:
            code = answers.main("", TextGeneration, script, **given)
        return code, json.loads(out.read_text(encoding="utf-8")), capsys.readouterr().out

    return called


@torch.no_grad()
def written(text: str, count: int) -> list[int]:
    """Return the tokens that follow, without a cache; the one that ends a text is the last."""
    ids = known(text)
    start = len(ids)
    while len(ids) < start + count and ids[-1] != FORM.end:
        ids.append(int(network().whole(torch.tensor([ids]))[0, -1].argmax()))
    return ids[start:]


def tokens_of(model: Path) -> Tokens:
    with open_engine("onnx", EngineSpec(model)) as engine:
        return Tokens.of(Model.of(engine))


def known(text: str) -> list[int]:
    """Return the numbers of a text's bytes, in the order of their signs."""
    from utils.export.scripts.gpt import byte_tokenizer

    return Tokens(byte_tokenizer(FORM), "test").encode([text])[0].ids.tolist()


def test_texts_and_figures(run: Callable[..., Any], ckpt: Path) -> None:
    code, found, out = run("multi", "--max_new_tokens", 12)
    assert code == 0
    tokens = tokens_of(ckpt)
    for text, one in zip(TEXTS, found["answers"], strict=True):
        wanted = [token for token in written(text, 12) if token != FORM.end]
        before = tokens.decode(known(text))
        assert one["answer"]["text"] == tokens.decode([*known(text), *wanted])[len(before) :]
        assert one["answer"]["tokens"] == len(wanted)
    assert {"decode_tokens_per_s", "first_token_s_median", "first_token_s_p99"} <= set(found["figures"])
    assert "figures: decode_tokens_per_s" in out
    assert "truncated at --max_new_tokens" in out


def test_drawn_texts_do_not_depend_on_the_batch(run: Callable[..., Any]) -> None:
    words = ("--max_new_tokens", 9, "--do_sample", "--temperature", 1.5, "--top_p", 0.95, "--seed", 3)
    made = [run("multi", *words, "--batch_size", size)[1]["answers"] for size in (1, 3, 4)]
    assert [one["answer"]["text"] for one in made[0]] == [one["answer"]["text"] for one in made[1]]
    assert [one["answer"]["text"] for one in made[0]] == [one["answer"]["text"] for one in made[2]]
    again = run("multi", *words[:-1], 4)[1]["answers"]
    assert [one["answer"]["text"] for one in made[0]] != [one["answer"]["text"] for one in again]


def test_a_text_on_the_command_line_and_stop_strings(run: Callable[..., Any]) -> None:
    _, found, _ = run("single", "--text", TEXTS[0], "--max_new_tokens", 20)
    whole = found["answers"][0]["answer"]["text"]
    string = whole[5:7]
    _, found, _ = run("single", "--text", TEXTS[0], "--max_new_tokens", 20, "--stop", string)
    assert found["answers"][0]["answer"]["text"] == whole[: whole.index(string)]
    assert found["answers"][0]["answer"]["why"] == "ended"


@pytest.mark.parametrize(("words", "size", "stride"), [((), 64, 32), (("--window", 8, "--stride", 3), 8, 3)])
def test_perplexity_is_that_of_torch(run: Callable[..., Any], words: tuple[Any, ...], size: int, stride: int) -> None:
    code, found, _ = run("valid", *words)
    assert code == 0
    cost, count = 0.0, 0
    for text in TEXTS:
        ids = known(text)
        for one in windows(len(ids), size, stride):
            with torch.no_grad():
                logs = network().whole(torch.tensor([ids[one.begin : one.end]]))[0].log_softmax(-1)
            cost -= sum(float(logs[j - one.begin - 1, ids[j]]) for j in range(one.first, one.end))
        count += len(ids) - 1
    assert found["metric"] == pytest.approx(math.exp(cost / count), rel=1e-5)
    size_of = sum(len(text[1:].encode()) for text in TEXTS)  # of a first character in two tokens neither counts
    assert found["secondary"]["bits_per_byte"] == pytest.approx(cost / math.log(2) / size_of, rel=1e-5)
    assert found["figures"]["scored_tokens_per_s"] > 0


def test_the_token_that_begins_a_text_makes_its_first_token_count(run: Callable[..., Any]) -> None:
    _, found, _ = run("valid", "--begin", "true")
    assert found["secondary"]["tokens"] == found["secondary"]["bytes"] == sum(len(text.encode()) for text in TEXTS)


def test_too_long_prompt_is_skipped(run: Callable[..., Any]) -> None:
    code, found, _ = run("multi", "--max_new_tokens", 45)
    assert code == 1
    reasons = [one["reason"] for one in found["failures"]]
    (reason,) = reasons
    assert all(part in reason for part in ("33 tokens", "takes 64", "--max_new_tokens 45", "at most 32"))
    assert len(found["answers"]) == 3
    code, found, _ = run("multi", "--max_new_tokens", 3, "--lengths", 8, 16)
    assert [one["name"] for one in found["failures"]] == ["texts.jsonl:1", "texts.jsonl:3"]
    assert "the largest planned cache (--lengths) holds 16; shorten it" in found["failures"][1]["reason"]


def test_nan_is_reported_per_sample(tmp_path: Path, run: Callable[..., Any], ckpt: Path) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(ckpt)
    table = next(one for one in model.graph.initializer if sorted(one.dims) == [FORM.width, FORM.vocabulary])
    values = numpy_helper.to_array(table).copy()
    sign = known("!")[0]
    values[(slice(None), sign) if values.shape[1] == FORM.vocabulary else sign] = np.nan
    table.CopyFrom(numpy_helper.from_array(values, table.name))
    onnx.save(model, tmp_path / "nan.onnx")
    code, found, _ = run("multi", "--ckpt", tmp_path / "nan.onnx", "--max_new_tokens", 2)
    assert code == 1
    assert len(found["nan_outputs"]) == len(TEXTS)  # the table makes the logits too
    code, found, _ = run("valid", "--ckpt", tmp_path / "nan.onnx")
    assert code == 1
    assert len(found["nan_outputs"]) == len(TEXTS)


def test_the_card_takes_planned_caches_and_refuses_open_ones(run: Callable[..., Any], ckpt: Path) -> None:
    code, found, _ = run("multi", "--max_new_tokens", 4, "--chunks", 16, target="sdaa")
    assert code == 0
    assert len(found["answers"]) == 4
    with pytest.raises(ConfigError, match=r"'past\.0\.key'.*'slots'.*--lengths"):
        open_engine("sdaa", EngineSpec(ckpt, dims={"tokens": (1,)}))


def test_invalid_flags() -> None:
    wrong = {
        "max_new_tokens": 0, "top_k": -1, "temperature": 0.0, "top_p": 1.5, "stride": -1, "window": 1, "seed": -2,
        "lengths": [0], "stop": [""], "repetition_penalty": math.nan,
    }  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=f"--{name}"):
            bound(TextGeneration, None, **{name: value}).check()


def model_of(**stored: Any) -> Model:
    from utils.export.scripts.gpt import byte_tokenizer

    return described(metadata={"tokenizer": byte_tokenizer(FORM), "generation": json.dumps(stored)})


def test_metadata_requirements() -> None:
    with pytest.raises(DataError, match="a single token"):
        bound(TextGeneration, model_of()).prepare([Prompt("a")])
    with pytest.raises(ConfigError, match="leave out --begin"):
        bound(TextGeneration, model_of(positions=64), begin=True).prepare([Prompt("ab")])
    with pytest.raises(ModelError, match="metadata 'generation'"):
        Notes.of(model_of(positions="many"))
    prepared = bound(TextGeneration, model_of(begin=299, begins=True)).prepare([Prompt("ab")])
    assert prepared.contexts[0].ids.tolist()[0] == 299
    assert plans(bound(TextGeneration, None, lengths=[8, 4], chunks=[3]).options) == ((4, 8), (1, 3))


def test_an_answer_is_one_line_and_a_file(tmp_path: Path) -> None:
    task = bound(TextGeneration, model_of())
    shown = task.show(Prompt("a b"), Answer("a b", " c\n\x1b[31md", 3, "limit", -1.0))
    assert shown.text == "-> c \u23ce d"
    assert shown.save is not None
    assert shown.save(tmp_path / "new").read_text(encoding="utf-8") == "a b c\n\x1b[31md\n"


def test_the_score_of_a_text_is_one_line() -> None:
    shown = bound(TextGeneration, model_of()).show(Prompt("a b"), Score(5.0, 4, 12))
    assert shown.text == "1.25000 nats per token, 4 tokens"
    assert shown.answer == {"cost": 5.0, "tokens": 4, "size": 12}
    assert shown.save is None


def test_equal_prompts_have_separate_files_with_stable_names(tmp_path: Path) -> None:
    files, task = [], bound(TextGeneration, model_of())
    for again in (0, 1, 2, 0, 1, 2):
        shown = task.show(Prompt("a b", again), Answer("a b", "c\ud800", 1, "limit", -1.0))
        assert shown.save is not None
        files.append(shown.save(tmp_path))
    assert files[:3] == files[3:]
    assert len(set(files)) == 3 == len(list(tmp_path.iterdir()))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize(("layers", "width", "heads"), [(1, 24, 3), (3, 32, 4)])
def test_greedy_texts_are_those_of_transformers(tmp_path: Path, layers: int, width: int, heads: int) -> None:
    from utils.export.networks.transformers_detectors import transformers
    from utils.export.scripts.gpt import export_gpt
    from utils.postprocess.text.sampling import Chooser, Sampling
    from utils.tasks.common.generation import Decoder, Limits, Plans, generate

    hf = transformers()
    config = hf.GPT2Config(
        vocab_size=300, n_positions=64, n_embd=width, n_layer=layers, n_head=heads, bos_token_id=299, eos_token_id=299,
        initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(layers)
    theirs = hf.GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path)
    from utils.export.scripts.gpt import byte_tokenizer

    (tmp_path / "tokenizer.json").write_text(byte_tokenizer(FORM), encoding="utf-8")
    assert export_gpt("", tmp_path, str(tmp_path), argv=["--forms", "dyn", "--name", "theirs"]) == 0
    rng = np.random.default_rng(layers)
    prompts = [rng.integers(0, 299, count) for count in (1, 4, 9, 30)]
    dims = {"tokens": (1, 4, 16), "slots": (8, 16, 32, 64)}
    with open_engine("onnx", EngineSpec(tmp_path / "theirs_dyn.onnx", dims=dims)) as engine:
        step = Decoder(engine, Model.of(engine), Plans())
        made = generate(step, prompts, Limits(30, frozenset([299])), Chooser(Sampling()))
    for prompt, one in zip(prompts, made, strict=True):
        ids = torch.from_numpy(prompt)[None]
        wanted = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False, pad_token_id=0
        )[0, len(prompt) :].tolist()
        assert one.ids == [token for token in wanted if token != 299]
