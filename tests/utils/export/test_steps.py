# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Exports of models with nested inputs and outputs, and errors of unsupported models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.onnx_files import ExportError
from utils.export.torch_export import EXPORTERS, export_onnx
from utils.fetch import UnreachableError

pytestmark = pytest.mark.torch

SLOWER = [pytest.param("dynamo", marks=pytest.mark.slow), "torchscript"]
"""Both exporters, the slow one in slow runs only."""

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


class Calls(torch.nn.Module):
    """A model of a function and its parts."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        return self.function(self, *args, **keywords)


@dataclass
class Answer:
    logits: Any
    hidden: Any = None


def ends(path: Path) -> tuple[list[str], list[str]]:
    graph = onnx.load(path).graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def scripted(model: Any, example: Any, stem: Path, **options: Any) -> Any:
    """Export by the fast exporter."""
    return export_onnx(model, example, stem, exporter="torchscript", **options)


def structured(self: Any, image: Any, parts: Any, scale: float = 1.0, mask: Any = None) -> Any:
    y = self.linear(image["x"]) * scale + parts[0]
    return {"logits": y, "none": None, "inner": Answer(y + parts[1], (image["x"] * 2,))}


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_nested_inputs_and_outputs(exporter: str, tmp_path: Path) -> None:
    model = Calls(structured, linear=torch.nn.Linear(4, 1))
    example = {"image": {"x": X}, "parts": [X[:, :1], torch.from_numpy(X[:, 1:2])], "scale": 2.0, "mask": None}
    written = export_onnx(model, example, tmp_path / "m", exporter=exporter)
    for result in written:
        assert ends(result.path) == (
            ["image_x", "parts_0", "parts_1"],
            ["logits", "inner_logits", "inner_hidden_0"],
        )
    assert "linear.weight" in {tensor.name for tensor in onnx.load(written[1].path).graph.initializer}
    assert type(model) is Calls
    with open_engine("onnx", EngineSpec(ckpt=written[1].path)) as engine:
        found = engine([X[:2], X[:2, :1], X[:2, 1:2]])
    with torch.no_grad():
        wanted = model(image={"x": torch.from_numpy(X[:2])}, parts=torch.from_numpy(X[:2]).split(1, 1), scale=2.0)
    for got, one in zip(found, (wanted["logits"], wanted["inner"].logits, wanted["inner"].hidden[0]), strict=True):
        np.testing.assert_allclose(got, one.numpy(), rtol=1e-5, atol=1e-6)


def test_forward_of_the_instance(tmp_path: Path) -> None:
    """As set by the hooks of other packages."""
    model = torch.nn.Linear(4, 2)
    model.forward = own = lambda input: {"y": input * 2}
    _, free = scripted(model, X, tmp_path / "m", float16=False)
    assert ends(free.path) == (["input"], ["y"])
    assert model.forward is own


def reused(self: Any, x: Any) -> Any:
    y = x + 1
    return y, y, x, self.weight, torch.ones(2)


@pytest.mark.parametrize("exporter", SLOWER)
def test_outputs_that_are_inputs_constants_or_duplicates(exporter: str, tmp_path: Path) -> None:
    model = Calls(reused, weight=torch.nn.Parameter(torch.arange(3.0)))
    names = ["weight", "b", "c", "d", "e"]
    for result in export_onnx(model, X, tmp_path / "m", exporter=exporter, output_names=names, input_names=["add"]):
        assert ends(result.path) == (["add"], names)
        with open_engine("onnx", EngineSpec(ckpt=result.path, dtype=("float32", "float16")["16" in str(result)])) as e:
            found = e(X.astype(np.float16 if "16" in str(result.path) else np.float32))
        for got, wanted in zip(found, (X + 1, X + 1, X, np.arange(3), np.ones(2)), strict=True):
            np.testing.assert_allclose(got, wanted, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_output_with_the_name_of_an_inner_value(exporter: str, tmp_path: Path) -> None:
    """Such as ``embedding``, torch's name of the lookup."""

    def embed(self: Any, ids: Any) -> Any:
        return torch.tanh(self.embedding(ids)).mean(1)

    model = Calls(embed, embedding=torch.nn.Embedding(9, 4))
    ids = torch.arange(6).reshape(2, 3)
    for result in export_onnx(model, ids, tmp_path / "m", exporter=exporter, output_names=["embedding"]):
        assert ends(result.path) == (["input"], ["embedding"])


@pytest.mark.slow
@pytest.mark.parametrize("exporter", SLOWER)
def test_unused_input_is_kept(exporter: str, tmp_path: Path) -> None:
    model = Calls(lambda self, x, other, y: x + y)
    given = (X, X[:, 0], X)
    _, free = export_onnx(model, given, tmp_path / "m", input_names=["x", "n", "y"], float16=False, exporter=exporter)
    assert ends(free.path) == (["x", "n", "y"], ["output"])
    assert onnx.load(free.path).graph.input[1].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_names": ["y", "y", "y"]}, r"output_names \['y', 'y', 'y'\]: 'y' occurs twice"),
        ({"output_names": ["y"]}, r" 1 name; .*3 outputs: output_0, output_1, output_2;"),
        ({"output_names": ["input", "b", "c"]}, "'input' is the name of an input"),
        ({"input_names": ["a", "b"]}, r"input_names \['a', 'b'\].* 2 names; .*1 input: input;"),
        ({"dynamic": {"x": {0: "batch"}}}, r"dynamic names \['x'\].*input_names \['input'\]"),
        (
            {"exporter": "torchscrip"},
            r"'torchscrip'; did you mean 'torchscript'\? use dynamo or torchscript$",
        ),
        (
            {"exporter": "torchscript", "custom_translation_table": {print: print}},
            "custom_translation_table.*exporter='dynamo'",
        ),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        export_onnx(Calls(lambda self, x: (x + 1, x + 2, x + 3)), X, tmp_path / "m", **options)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_one_axis_name_for_two_sizes(tmp_path: Path) -> None:
    axes = {name: {1: "seq"} for name in "ab"}
    with pytest.raises(ConfigError, match=r"'seq'.* 4 .*axis 1 .*'a'.* 2 .*axis 1"):
        scripted(
            Calls(lambda self, a, b: a.sum() + b.sum()),
            (X, X[:, :2]),
            tmp_path / "m",
            input_names=["a", "b"],
            dynamic=axes,
        )


@pytest.mark.slow
def test_one_axis_name_on_two_inputs(tmp_path: Path) -> None:
    model = Calls(lambda self, a, b: (a * b).sum(1))
    axes = {name: {0: "batch", 1: "seq"} for name in "ab"}
    _, free = export_onnx(model, (X, X + 1), tmp_path / "m", input_names=["a", "b"], dynamic=axes, float16=False)
    shapes = [value.type.tensor_type.shape.dim for value in onnx.load(free.path).graph.input]
    assert [[dim.dim_param for dim in shape] for shape in shapes] == [["batch", "seq"]] * 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Calls(lambda self, x: None), "the source model returns no tensor"),
        (
            Calls(lambda self, x: (x + 1, 3)),
            "output 'output_1' of the source model is not a tensor but of type int;",
        ),
        (
            Calls(lambda self, x: {"past": type("DynamicCache", (), {})()}),
            r"output 'past' of the source model is not a tensor but of type DynamicCache \(a cache: use_cache=False ",
        ),
        (Calls(lambda self, x: torch.complex(x, x)), "output 'output' .*: it is complex64;"),
        (Calls(lambda self, x: x.bfloat16()), r"'output' .*cannot be exported: .*BFloat16;"),
        (Calls(lambda self, x: x.to_sparse()), "'output' .*cannot be exported: .*dense"),
        (
            Calls(lambda self, x: torch.nn.functional.dropout(x)),
            "output 'output' .*not deterministic .*training=self.training",
        ),
        (Calls(lambda self, x, y: x), r"cannot run inputs of shapes \[\[3, 4\]\]: TypeError: .*example_inputs"),
    ],
    ids=["none", "a number", "a cache", "complex", "bfloat16", "sparse", "dropout", "arguments"],
)
def test_unsupported_models_raise(model: Any, message: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: sparse tensors are new
        with pytest.raises(ModelError, match=message) as caught:
            export_onnx(model, X, tmp_path / "m")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_function_instead_of_a_module_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="function, not a Module"):
        export_onnx(lambda x: x, X, tmp_path / "m")


@pytest.mark.parametrize(("value", "reason"), [(0.0, "0 everywhere"), (float("nan"), "NaN in places")])
def test_uninformative_output_warns(value: float, reason: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=f"'output' .*{reason}"):
        scripted(Calls(lambda self, x: x * value), X, tmp_path / "m", float16=False)


def test_sizes_fixed_by_a_trace(tmp_path: Path) -> None:
    def sized(self: Any, x: Any) -> Any:
        return x + torch.arange(float(int(x.shape[0])))[:, None]

    with pytest.warns(UserWarning, match="as constants"), pytest.raises(ExportError) as caught:
        scripted(Calls(sized), X, tmp_path / "m")
    assert "cannot run inputs of shapes [[7, 4]]: " in str(caught.value)
    assert str(caught.value).endswith("or try another exporter; written: m.onnx")


class Matches(torch.nn.Module):
    """Similarity of images and texts; onnxsim renames the dimension of the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(40, 8)

    def forward(self, images: Any, ids: Any, mask: Any) -> Any:
        texts = self.words(ids.view(-1, ids.shape[-1])) * mask[..., None]
        return images @ texts.sum(1).T


def test_dynamic_sizes_keep_their_names(tmp_path: Path) -> None:
    ids = torch.ones(2, 5, dtype=torch.int64)
    dynamic = {"images": {0: "batch"}, "ids": {0: "queries"}, "mask": {0: "queries"}}
    export_onnx(
        Matches(),
        [torch.ones(1, 8), ids, ids.float()],
        tmp_path / "m",
        dynamic=dynamic,
        forms=["dyn"],
        exporter="torchscript",
    )
    inputs = onnx.load(tmp_path / "m_dyn.onnx").graph.input
    assert [one.type.tensor_type.shape.dim[0].dim_param for one in inputs] == ["batch", "queries", "queries"]


def test_a_model_of_torchscript(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        model = torch.jit.script(torch.nn.Linear(4, 2))
    with pytest.raises(ModelError, match=r"TorchScript.*exporter='torchscript'"):
        export_onnx(model, {"input": X}, tmp_path / "m")
    assert len(export_onnx(model, X, tmp_path / "m", exporter="torchscript")) == 3


def test_every_module_keeps_its_mode(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)).train()
    model[0].eval()  # frozen
    scripted(model, X, tmp_path / "m")
    assert [part.training for part in model.modules()] == [True, False, True, True]


class TestFloat16:
    def test_below_float16(self, tmp_path: Path) -> None:
        with pytest.raises(ExportError) as caught:
            scripted(Calls(lambda self, x: (x + 1, x * 1e-9)), X, tmp_path / "m", output_names=["sum", "tiny"])
        text = str(caught.value)
        assert text.startswith("m_float16_dyn.onnx: output 'tiny' is below float16: its largest value is 2.0e-09, ")
        assert "6.1e-05" in text
        assert "float16=False" in text
        assert text.endswith("written: m.onnx, m_dyn.onnx")
        assert [one.error is None for one in caught.value.results] == [True, True, False]

    def test_small_outputs_are_compared_relatively(self, tmp_path: Path) -> None:
        *_, half = scripted(Calls(lambda self, x: x.softmax(1) * 1e-5), X, tmp_path / "m")
        assert half.max_relative_error < 5e-2

    def test_a_top_k_of_near_ties(self, tmp_path: Path) -> None:
        order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
        x = (1 + 1e-4 * order).repeat(2, 1)
        *_, half = scripted(Calls(lambda self, x: torch.topk(x, 9)), x, tmp_path / "m")
        assert half.max_relative_error < 2e-3
        with open_engine("onnx", EngineSpec(ckpt=half.path, dtype="float16")) as engine:
            _, index = engine(x.numpy().astype(np.float16))
        assert (index != torch.topk(x, 9)[1].numpy()).any(), "no rank changed, so nothing is tested"

    def test_a_model_in_float64(self, tmp_path: Path) -> None:
        with pytest.raises(ExportError, match=r"float64.*float32.*; written: m.onnx"):
            scripted(torch.nn.Linear(4, 2).double(), X.astype(np.float64), tmp_path / "m")

    @pytest.mark.slow
    def test_a_mean_over_a_mask_inside_a_branch(self, tmp_path: Path) -> None:
        """Regression: ``Cast: Inferred elem type differs from existing elem type: (1) vs (10)``."""

        def mean(x: Any, mask: Any) -> Any:
            kept = mask.float()[..., None]
            return (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)

        def pooled(self: Any, x: Any, mask: Any) -> Any:
            return torch.cond(mask.sum() > 0, mean, lambda x, mask: x.sum(1) * mask[:, :1].float(), (x, mask))

        mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
        *_, half = export_onnx(Calls(pooled), (torch.rand(2, 3, 4), mask), tmp_path / "m")
        assert "If" in {node.op_type for node in onnx.load(half.path).graph.node}
        assert half.max_relative_error < 2e-3


@pytest.mark.slow
@pytest.mark.long
def test_minilm_in_all_forms(tmp_path: Path) -> None:
    """A real BERT with mean pooling over a mask, and an output with the name of an inner value."""
    pytest.importorskip("transformers")
    from benchmarks.parts.real_models import minilm_torch, tokens

    try:
        model, (ids, mask) = minilm_torch(), tokens(["a man is playing a guitar", "stocks fell"])
    except UnreachableError as error:
        pytest.skip(str(error))
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}
    example = {"input_ids": ids, "attention_mask": mask}
    written = export_onnx(model, example, tmp_path / "m", output_names=["embedding"], dynamic=axes)
    assert [one.max_relative_error < most for one, most in zip(written, (1e-5, 1e-5, 5e-3), strict=True)] == [True] * 3
    for result in written:
        assert ends(result.path) == (["input_ids", "attention_mask"], ["embedding"])


class TestBranches:
    @pytest.mark.slow
    def test_dynamo_reports_the_line(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        model = Calls(lambda self, x: x + 1 if x.sum() > 0 else x - 1)
        with pytest.raises(ModelError, match=r"depends on values \(test_steps.py, line \d+\)") as caught:
            export_onnx(model, X, tmp_path / "m")
        assert "\n" not in str(caught.value)
        assert "torchscript" not in str(caught.value), "it would only hide the branch"
        assert capfd.readouterr() == ("", "")

    def test_torchscript_warns(self, tmp_path: Path) -> None:
        model = Calls(lambda self, x: x + 1 if x.sum() > 0 else x - 1)
        with pytest.warns(UserWarning, match=r"constants \(test_steps.py:\d+\)"):
            scripted(model, X, tmp_path / "m")

    @pytest.mark.slow
    def test_errors_suggest_the_other_exporter(self, tmp_path: Path) -> None:
        model = Calls(lambda self, x: torch.sort(x, dim=1, stable=True)[0])
        for exporter, other in (EXPORTERS, EXPORTERS[::-1]):
            with pytest.raises(
                ModelError, match=f"torch.onnx cannot export Calls: .*; try exporter='{other}'"
            ) as caught:
                export_onnx(model, X, tmp_path / "m", exporter=exporter)
            assert "\n" not in str(caught.value)
