"""Paraformer's two models with what lies between them, against the whole network run one recording at a time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from constructed_models import options
from support import ROOT

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.fetch import UnreachableError, fetched
from utils.fetch.package import Package
from utils.tasks.model import Model
from utils.tasks.parallel_transcription import PARALLEL_TRANSCRIPTION, Notes, Spoken, decode, grouped, infer, setup
from utils.tasks.prepared import NoAnswer

FOLDER = ROOT / "example" / "speech" / "paraformer"
NAMES = ("model", "folder", "export_onnx")

FUNASR = Package(
    name="funasr_networks",
    what="FunASR's networks, as they are published",
    registry="pip",
    kind="wheel",
    package="funasr",
    version="1.4.16",
    sha256="f95943f6a8111349a1b08907363b048a49e9cb9caa1e3afd8c92970d08bf450d",
    size=999588,
    members=(
        *(f"funasr/models/{part}/**/*.py" for part in ("sanm", "paraformer", "transformer", "scama", "lora", "ctc")),
        *("funasr/register.py", "funasr/utils/amp.py", "funasr/train_utils/device_funcs.py"),
    ),
    unpacked=653497,
    licence="MIT",
    read_in="licenses/LICENSE of the wheel",
    use="use and redistribute",
)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The folder's modules."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name)
    return found


def test_what_goes_together() -> None:
    assert grouped([3, 40, 8, 100, 9], (8, 64)) == [(8, [0, 2]), (64, [1, 4])]


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ModelError, match="metadata 'parallel_transcription' cannot be used"):
        Notes.of(Model(Path("x.onnx")))
    with pytest.raises(ConfigError, match="--tokens 0 must be at least 1 each"):
        PARALLEL_TRANSCRIPTION.check(options(PARALLEL_TRANSCRIPTION, tokens=[0]))
    with pytest.raises(ModelError, match="stores no vocabulary"):
        decode([], [], Model(Path("x.onnx")), options(PARALLEL_TRANSCRIPTION))


def test_texts_of_windows() -> None:
    stored = {
        "vocabulary": '["<blank>", "he@@", "llo", "you"]',
        "parallel_transcription": '{"silent": ["<blank>"]}',
    }
    model = Model(Path("x.onnx"), metadata=stored)
    outputs = [(0.5, [[1, 2, 0], [3]], 0), (0.0, [], 9), (0.0, [[]], 0)]
    first, second, third = decode(outputs, [Spoken((1,), 1.0)] * 3, model, options(PARALLEL_TRANSCRIPTION))
    assert (first.text, first.score, third.text) == ("hello you", 0.5, "")
    assert isinstance(second, NoAnswer)
    assert "use --tokens 9" in second.reason
    with pytest.raises(ModelError, match="writes token 7, and its vocabulary has 4"):
        decode([(1.0, [[7]], 0)], [Spoken((1,), 1.0)], model, options(PARALLEL_TRANSCRIPTION))


def stirred(own: dict[str, ModuleType], **sizes: int) -> Any:
    """Return a small network with weights that differ from what they begin with."""
    import torch

    torch.manual_seed(0)
    form = replace(
        own["model"].Form(),
        **{"width": 16, "layers": 2, "inner": 24, "decoder_layers": 2, "decoder_inner": 20, "bands": 8, **sizes},
        vocabulary=12,
        positions=64,
    )
    whole = own["model"].Paraformer(form).eval()
    with torch.no_grad():
        for value in whole.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    return whole


def written_apart(own: dict[str, ModuleType], whole: Any, part: Any) -> Any:
    """Return the logits of one recording: torch alone, without padding, tokens collected frame by frame."""
    import torch

    ones = torch.ones(1, len(part))
    with torch.no_grad():
        states, weights = own["model"].Listening(whole)(torch.from_numpy(part[None]), ones)
        tokens, held, token = [], 0.0, torch.zeros(states.shape[2])
        ends = torch.cat([weights[0], torch.tensor([whole.form.tail])]).tolist()
        for state, weight in zip([*states[0], torch.zeros(states.shape[2])], ends, strict=True):
            if held + weight < 1:
                held, token = held + weight, token + weight * state
                continue
            tokens.append(token + (1 - held) * state)
            held += weight - 1
            token = held * state
        if not tokens:
            return np.zeros((0, whole.form.vocabulary))
        embedded = torch.stack(tokens)[None]
        return whole.decoder(embedded, torch.ones(embedded.shape[:2]), states, ones)[0].numpy()


@pytest.fixture
def exported(own: dict[str, ModuleType], tmp_path: Path) -> Iterator[tuple[dict[str, ModuleType], Any, Path]]:
    whole = stirred(own)
    read = own["export_onnx"]._random(whole.form)
    own["export_onnx"].write(whole, read, tmp_path / "p", forms=("dyn",), exporter="torchscript")
    yield own, whole, tmp_path


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("target", "dtype", "apart"), [("onnx", "float32", 1e-4), ("sdaa", "float16", 0.03)])
def test_both_models_write_what_the_whole_network_writes(
    exported: tuple[dict[str, ModuleType], Any, Path], target: str, dtype: str, apart: float
) -> None:
    """Recordings of other lengths, padded to planned sizes in batches of 3, against each by itself."""
    own, whole, folder = exported
    frames = (5, 31, 40, 17, 1, 64, 33)
    made = np.random.default_rng(0)
    heard = [made.normal(size=(count, 56)).astype(np.float32) for count in frames]
    wanted = [written_apart(own, whole, part) for part in heard]
    assert len({len(one) for one in wanted}) > 3
    how = options(PARALLEL_TRANSCRIPTION, lengths=[32, 64], tokens=[8, 16, 64], batch_size=3, skip_postprocess=True)
    sizes = PARALLEL_TRANSCRIPTION.open_sizes(how)
    engines = {}
    for part in ("encoder", "decoder"):
        spec = EngineSpec(ckpt=folder / f"p_{part}_dyn.onnx", batch_size=3, dtype=dtype, open_sizes=sizes[part])
        engines[part] = open_engine(target, spec)
    contexts = [Spoken((5, 31), 1.0), *(Spoken((count,), 1.0) for count in frames[2:])]
    state = setup(engines, None, how)  # type: ignore[arg-type]
    (packed,) = infer(engines, [np.concatenate(heard)], contexts, state)
    joined = [np.concatenate(wanted[:2]), *wanted[2:]]
    for row, right in zip(packed, joined, strict=True):
        np.testing.assert_allclose(row[: len(right)], right, atol=apart * np.abs(right).max(initial=1))
        assert not row[len(right) :].any()
    said = infer(engines, [np.concatenate(heard)], contexts, state._replace(raw=False))
    numbers = [[number for part in one[1] for number in part] for one in said]
    assert [len(one) for one in numbers] == [len(one) for one in joined]
    if target == "onnx":
        assert numbers == [one.argmax(axis=1).tolist() for one in joined]
    sick = np.concatenate(heard)
    sick[0] = np.nan
    scores = [one[0] for one in infer(engines, [sick], contexts, state._replace(raw=False))]
    assert [bool(np.isnan(one)) for one in scores] == [True] + [False] * 5
    few = state._replace(raw=False, tokens=(8,))
    assert infer(engines, [np.concatenate(heard)], contexts, few)[4][2] == len(wanted[5])
    engines["encoder"] = open_engine("onnx", EngineSpec(ckpt=folder / "p_encoder_dyn.onnx"))
    with pytest.raises(ConfigError, match="--lengths 65: .* knows 64 places"):
        setup(engines, None, options(PARALLEL_TRANSCRIPTION, lengths=[65]))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")  # FunASR's own
@pytest.mark.parametrize(("shift", "blind"), [(0, 0), (2, 1)])
def test_networks_are_funasrs(
    own: dict[str, ModuleType], shift: int, blind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights under the same names give what FunASR's own code gives, part by part."""
    import torch

    try:
        folder = fetched(FUNASR)
    except UnreachableError as error:
        pytest.skip(f"FunASR's wheel cannot be had here: {error}")
    package = ModuleType("funasr")
    package.__path__ = [str(folder / "funasr")]
    monkeypatch.setitem(sys.modules, "funasr", package)
    whole = stirred(own, shift=shift, decoder_shift=shift, blind_layers=blind, decoder_kernel=9)
    form = whole.form
    sizes = {"attention_heads": 4, "normalize_before": True, "sanm_shfit": shift}
    encoder = importlib.import_module("funasr.models.sanm.encoder").SANMEncoder(
        56, form.width, linear_units=form.inner, num_blocks=2, input_layer="pe", pos_enc_class=None, **sizes
    )
    decoder = importlib.import_module("funasr.models.paraformer.decoder").ParaformerSANMDecoder(
        12, form.width, linear_units=form.decoder_inner, num_blocks=2 + blind, att_layer_num=2, kernel_size=9, **sizes
    )
    predictor = importlib.import_module("funasr.models.paraformer.cif_predictor").CifPredictorV2(
        form.width, 1, 1, tail_threshold=form.tail
    )
    missing = [
        part.eval().load_state_dict(mine.state_dict(), strict=False)
        for part, mine in ((encoder, whole.encoder), (decoder, whole.decoder), (predictor, whole.predictor))
    ]
    assert [list(one) for one in missing] == [[[], []], [["embed.0.weight"], []], [[], []]]
    heard = torch.randn(1, 41, 56)
    with torch.no_grad():
        states, _, _ = encoder(heard, torch.tensor([41]))
        tokens, count, weights, _ = predictor(states, mask=torch.ones(1, 1, 41))
        right = decoder(states, torch.tensor([41]), tokens, count.long())[0][0].numpy()
        found, mine = own["model"].Listening(whole)(heard, torch.ones(1, 41))
    np.testing.assert_allclose(found, states, atol=1e-5)
    np.testing.assert_allclose(mine, weights[:, :41], atol=1e-6)
    np.testing.assert_allclose(written_apart(own, whole, heard[0].numpy()), right, atol=1e-4)
    for name in [name for name in sys.modules if name.startswith("funasr.")]:
        monkeypatch.delitem(sys.modules, name)
