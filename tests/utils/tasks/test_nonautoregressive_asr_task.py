"""Paraformer's two models with what lies between them, against the whole network run one recording at a time."""

from __future__ import annotations

import importlib
import importlib.util
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
from utils.pipeline.session import described
from utils.tasks.model import Model
from utils.tasks.nonautoregressive_asr import Notes, ParallelTranscription, Spoken, grouped
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
        *("funasr/register.py", "funasr/utils/amp.py", "funasr/train_utils/device_funcs.py", "funasr/utils/fbank.py"),
        *("funasr/frontends/wav_frontend.py", "funasr/frontends/eend_ola_feature.py"),
        "funasr/utils/postprocess_utils.py",
    ),
    unpacked=702062,
    licence="MIT",
    read_in="licenses/LICENSE of the wheel",
    use="use and redistribute",
)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The folder's modules."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in NAMES:
        sys.modules.pop(name, None)
    found = {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:  # no monkeypatch: it would put them back
        del sys.modules[name]
    return found


def task(model: Model, **given: Any) -> ParallelTranscription:
    """A task with these flags, bound to a model."""
    bound: ParallelTranscription = ParallelTranscription(options(ParallelTranscription, **given)).bind(model)
    return bound


def test_combinations() -> None:
    assert grouped([3, 40, 8, 100, 9], (8, 64)) == [(8, [0, 2]), (64, [1, 4])]


def test_invalid_combinations() -> None:
    with pytest.raises(ModelError, match="metadata 'parallel_transcription' cannot be used"):
        Notes.of(Model(Path("x.onnx")))
    with pytest.raises(ConfigError, match="--tokens 0 "):
        task(Model(Path("x.onnx")), tokens=[0]).check()
    with pytest.raises(ModelError, match="stores no vocabulary"):
        task(Model(Path("x.onnx"))).decode([], [])


def test_texts_of_windows() -> None:
    stored = {
        "vocabulary": '["<blank>", "he@@", "llo", "you"]',
        "parallel_transcription": '{"silent": ["<blank>"]}',
    }
    writes = task(Model(Path("x.onnx"), metadata=stored))
    outputs = [(0.5, [[1, 2, 0], [3]], 0), (0.0, [], 9), (0.0, [[]], 0)]
    first, second, third = writes.decode(outputs, [Spoken((1,), 1.0)] * 3)
    assert (first.text, first.score, third.text) == ("hello you", 0.5, "")
    assert isinstance(second, NoAnswer)
    assert "use --tokens 9" in second.reason
    with pytest.raises(ModelError, match=r"token 7, .*vocabulary has 4"):
        writes.decode([(1.0, [[7]], 0)], [Spoken((1,), 1.0)])


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
def exported(own: dict[str, ModuleType], tmp_path: Path) -> tuple[dict[str, ModuleType], Any, Path]:
    whole = stirred(own)
    read = own["export_onnx"]._random(whole.form)
    own["export_onnx"].write(whole, read, tmp_path / "p", forms=("dyn",), exporter="torchscript")
    return own, whole, tmp_path


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("target", "dtype", "apart"), [("onnx", "float32", 1e-4), ("sdaa", "float16", 0.03)])
def test_encoder_and_decoder_equal_the_whole_network(
    exported: tuple[dict[str, ModuleType], Any, Path], target: str, dtype: str, apart: float
) -> None:
    """Recordings of other lengths, padded to planned sizes in batches of 3, against each by itself."""
    own, whole, folder = exported
    frames = (5, 31, 40, 17, 1, 64, 33)
    made = np.random.default_rng(0)
    heard = [made.normal(size=(count, 56)).astype(np.float32) for count in frames]
    wanted = [written_apart(own, whole, part) for part in heard]
    assert len({len(one) for one in wanted}) > 3
    how = options(ParallelTranscription, lengths=[32, 64], tokens=[8, 16, 64], batch_size=3, skip_postprocess=True)
    both = ParallelTranscription(how)
    sizes = both.open_sizes()
    engines = {}
    for part in ("encoder", "decoder"):
        spec = EngineSpec(ckpt=folder / f"p_{part}_dyn.onnx", batch_size=3, dtype=dtype, open_sizes=sizes[part])
        engines[part] = open_engine(target, spec)
    contexts = [Spoken((5, 31), 1.0), *(Spoken((count,), 1.0) for count in frames[2:])]
    both.bind(described(engines))
    both.state = both.setup(engines, None)
    (packed,) = both.infer(engines, [np.concatenate(heard)], contexts)
    joined = [np.concatenate(wanted[:2]), *wanted[2:]]
    for row, right in zip(packed, joined, strict=True):
        np.testing.assert_allclose(row[: len(right)], right, atol=apart * np.abs(right).max(initial=1))
        assert not row[len(right) :].any()
    how.skip_postprocess = False
    said = both.infer(engines, [np.concatenate(heard)], contexts)
    numbers = [[number for part in one[1] for number in part] for one in said]
    assert [len(one) for one in numbers] == [len(one) for one in joined]
    if target == "onnx":
        assert numbers == [one.argmax(axis=1).tolist() for one in joined]
    sick = np.concatenate(heard)
    sick[0] = np.nan
    scores = [one[0] for one in both.infer(engines, [sick], contexts)]
    assert [bool(np.isnan(one)) for one in scores] == [True] + [False] * 5
    both.state = both.state._replace(tokens=(8,))
    assert both.infer(engines, [np.concatenate(heard)], contexts)[4][2] == len(wanted[5])
    engines["encoder"] = open_engine("onnx", EngineSpec(ckpt=folder / "p_encoder_dyn.onnx"))
    with pytest.raises(ConfigError, match=r"--lengths 65: .* 64 "):
        task(described(engines), lengths=[65]).setup(engines, None)


@pytest.fixture
def funasr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """FunASR's own code, importable."""
    try:
        folder = fetched(FUNASR)
    except UnreachableError as error:
        pytest.skip(f"FunASR's wheel cannot be had here: {error}")
    package = ModuleType("funasr")
    package.__path__ = [str(folder / "funasr")]
    monkeypatch.setitem(sys.modules, "funasr", package)
    if importlib.util.find_spec("librosa") is None:  # imported there, and not used
        monkeypatch.setitem(sys.modules, "librosa", ModuleType("librosa"))
    yield folder
    for name in [name for name in sys.modules if name.startswith("funasr.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")  # FunASR's own
@pytest.mark.parametrize(("shift", "blind"), [(0, 0), (2, 1)])
def test_networks_equal_funasr(own: dict[str, ModuleType], funasr: Path, shift: int, blind: int) -> None:
    """The same weights under the same names give what FunASR's own code gives, part by part."""
    import torch

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


@pytest.mark.slow
@pytest.mark.torch
def test_encoder_features_equal_funasr(own: dict[str, ModuleType], funasr: Path, tmp_path: Path) -> None:
    """Filter bank, frames side by side and means, of recordings of other lengths; and the text of pieces."""
    import torch

    from utils.postprocess.text.pieces import joined
    from utils.tasks.nonautoregressive_asr import _heard

    means(tmp_path, 560)
    shift, scale = (np.array(one, np.float32) for one in own["folder"].read_means(tmp_path / "am.mvn", 560))
    settings = own["folder"].FilterBank(shape="hamming")
    notes = Notes(settings, 7, 6, shift, scale, 0.45, 64)
    theirs = importlib.import_module("funasr.frontends.wav_frontend").WavFrontend(
        str(tmp_path / "am.mvn"), window="hamming", n_mels=80, lfr_m=7, lfr_n=6, dither=0.0
    )
    for count in (400, 4000, 16000, 23456):
        sound = np.random.default_rng(count).normal(0, 0.1, count).astype(np.float32)
        wanted, _ = theirs(torch.from_numpy(sound[None]), [count])
        np.testing.assert_allclose(_heard(sound, notes), wanted[0].numpy(), atol=2e-3)
    text = importlib.import_module("funasr.utils.postprocess_utils").sentence_postprocess
    for pieces in (
        ["我", "爱", "hel@@", "lo", "world", "三"],
        ["you", "ap@@", "ple"],
        ["中", "1", "2"],
        ["it's", "我"],
    ):
        assert joined(pieces) == text(list(pieces))[0]


CONFIG = """
model: SeacoParaformer
encoder: SANMEncoder
encoder_conf: {output_size: 16, attention_heads: 4, linear_units: 24, num_blocks: 2, input_layer: pe, kernel_size: 11,
  sanm_shfit: 0, selfattention_layer_type: sanm, normalize_before: true}
decoder: ParaformerSANMDecoder
decoder_conf: {attention_heads: 4, linear_units: 20, num_blocks: 2, att_layer_num: 2, kernel_size: 11, sanm_shfit: 0}
predictor: CifPredictorV3
predictor_conf: {idim: 16, threshold: 1.0, l_order: 1, r_order: 1, tail_threshold: 0.45, upsample_times: 3}
frontend: WavFrontend
frontend_conf: {fs: 16000, window: hamming, n_mels: 8, frame_length: 25, frame_shift: 10, lfr_m: 7, lfr_n: 6}
"""


def means(folder: Path, width: int) -> None:
    """Write means as Kaldi's text of networks."""
    made = np.random.default_rng(0)
    shift, scale = (" ".join(f"{one:.6f}" for one in made.uniform(low, low + 1, width)) for low in (-9, 0.1))
    lines = [f"<Nnet>\n<Splice> {width} {width}\n[ 0 ]\n<AddShift> {width} {width}\n<LearnRateCoef> 0 [ {shift} ]"]
    lines += [f"<Rescale> {width} {width}\n<LearnRateCoef> 0 [ {scale} ]\n</Nnet>\n"]
    (folder / "am.mvn").write_text("\n".join(lines))


@pytest.fixture
def funasrs_folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "tokens.json").write_text(
        '["<blank>", "<s>", "</s>", "a", "b@@", "c", "d", "e", "f", "g", "h", "<unk>"]'
    )
    means(tmp_path, 56)
    return tmp_path


@pytest.mark.slow
@pytest.mark.torch
def test_a_folder_of_funasr_is_read(own: dict[str, ModuleType], funasrs_folder: Path) -> None:
    import torch

    read = own["folder"].read_folder(funasrs_folder)
    whole = stirred(own)
    assert read.form == replace(whole.form, positions=1024)
    assert (len(read.tokens), len(read.shift), read.features.shape, read.features.bands) == (12, 56, "hamming", 8)
    state = {**whole.state_dict(), "decoder.embed.0.weight": torch.zeros(12, 16), "bias_embed.weight": torch.zeros(3)}
    torch.save(state, funasrs_folder / "model.pt")
    loaded = own["export_onnx"].load_folder(funasrs_folder, read.form)
    assert torch.equal(loaded.decoder.output_layer.weight, whole.decoder.output_layer.weight)
    torch.save({**state, "decoder.bias_decoder.norm3.weight": torch.zeros(3)}, funasrs_folder / "model.pt")
    with pytest.raises(ModelError, match=r"unknown decoder\.bias_decoder\.norm3\.weight"):
        own["export_onnx"].load_folder(funasrs_folder, read.form)
    (funasrs_folder / "tokens.json").unlink()
    (funasrs_folder / "tokens.txt").write_text("<blank> 0\na 1\nb 2\n")
    assert own["folder"].read_folder(funasrs_folder).tokens == ["<blank>", "a", "b"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("model: SeacoParaformer", "model: SenseVoiceSmall", "model 'SenseVoiceSmall' is not supported"),
        ("input_layer: pe", "input_layer: conv2d", "encoder_conf input_layer 'conv2d' is not supported, only 'pe'"),
        ("threshold: 1.0, l", "threshold: 0.9, l", "predictor_conf threshold 0.9 is not supported"),
        ("tail_threshold: 0.45", "tail_threshold: 0", "supported are a tail above 0"),
        ("attention_heads: 4, linear_units: 24", "attention_heads: 3, linear_units: 24", "multiple of 3"),
        ("num_blocks: 2, input", "num_blocks: two, input", "encoder_conf num_blocks 'two' must be a whole number"),
        ("lfr_m: 7", "lfr_m: 5", "<AddShift> has 56 numbers, and a frame has 40"),
        ("window: hamming", "window: sinc", "frontend_conf: features: shape 'sinc' must be one of"),
        ("frontend_conf:", "other:", "frontend_conf is missing"),
        ("encoder:", "[", "cannot be read"),
    ],
)
def test_invalid_folder(own: dict[str, ModuleType], funasrs_folder: Path, old: str, new: str, part: str) -> None:
    assert CONFIG.count(old) == 1
    (funasrs_folder / "config.yaml").write_text(CONFIG.replace(old, new))
    with pytest.raises(ModelError) as caught:
        own["folder"].read_folder(funasrs_folder)
    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
