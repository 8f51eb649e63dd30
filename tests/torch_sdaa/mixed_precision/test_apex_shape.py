"""``import apex`` without an installed apex, and errors of one line for its wrong use."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from torch_sdaa import apex as ours  # noqa: E402
from torch_sdaa.apex import amp  # noqa: E402
from torch_sdaa.loading import apex_import  # noqa: E402

pytestmark = pytest.mark.torch

INSTALLED = any(
    finder.find_spec("apex", None) is not None
    for finder in sys.meta_path
    if not isinstance(finder, apex_import.Finder) and hasattr(finder, "find_spec")
)
needs_none = pytest.mark.skipif(INSTALLED, reason="an apex is installed, which wins")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    amp._state.cast_everywhere(False)
    amp._state.__init__()


@pytest.fixture
def unimported(monkeypatch: Any) -> None:
    """Remove imported modules named ``apex``."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "apex"]:
        monkeypatch.delitem(sys.modules, name)


@needs_none
def test_both_names_are_one_module(unimported: None) -> None:
    import apex
    import apex.parallel
    from apex import amp as theirs
    from apex.optimizers import NpuFusedSGD

    assert apex is ours
    assert theirs is amp
    assert sys.modules["apex.optimizers"] is sys.modules["torch_sdaa.apex.optimizers"]
    assert NpuFusedSGD is ours.optimizers.SdaaFusedSGD
    assert ours.__spec__.name == "torch_sdaa.apex"
    assert importlib.reload(ours.levels).__name__ == "torch_sdaa.apex.levels"


@needs_none
def test_the_module_is_found_without_being_imported(unimported: None) -> None:
    assert importlib.util.find_spec("apex") is not None
    assert "apex" not in sys.modules


def test_an_installed_apex_takes_precedence(unimported: None, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").write_text("real = True\n")
    (tmp_path / "apex" / "contrib.py").write_text("kernels = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import apex
    import apex.contrib

    assert apex.real
    assert apex.contrib.kernels == 1
    assert ours.amp is amp
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'apex.amp'$"):
        importlib.import_module("apex.amp")


@needs_none
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("apex.normalization", "the apex of torch_sdaa has no 'apex.normalization': use torch.nn.LayerNorm"),
        ("apex.fp16_utils", "use apex.amp.initialize"),
        ("apex.contrib.multihead_attn", "the apex of torch_sdaa has no 'apex.contrib'"),
        ("apex.opimizers", "it has amp, optimizers and parallel"),
    ],
)
def test_a_missing_module_is_an_error(name: str, message: str, unimported: None) -> None:
    importlib.import_module("apex")
    with pytest.raises(ModuleNotFoundError, match=message) as caught:
        importlib.import_module(name)
    assert "\n" not in str(caught.value)


def test_the_finder_is_registered_once_and_last() -> None:
    apex_import.offer()

    assert sum(isinstance(finder, apex_import.Finder) for finder in sys.meta_path) == 1


@pytest.mark.slow
def test_a_plain_training_does_not_import_it() -> None:
    script = (
        "import sys, torch, torch_sdaa; torch.nn.Linear(2, 2).sdaa(torch.device('sdaa', 0)); "
        "print([name for name in sys.modules if 'apex' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "['torch_sdaa.loading.apex_import']\n"


# -------------------------------------------------------------------------------------------------------- wrong use


def _pair(device: str = "sdaa") -> tuple[Any, Any]:
    model = nn.Linear(2, 2).to(device)
    return model, torch.optim.SGD(model.parameters(), 0.1)


def _refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises((ValueError, RuntimeError, TypeError)) as caught:
        amp.initialize(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("level", "hint"),
    [("o1", "did you mean 'O1'?"), ("02", "did you mean 'O2'?"), (2, "did you mean 'O2'?"), ("O4", "digit)")],
)
def test_an_unknown_level_is_an_error(level: Any, hint: str) -> None:
    message = _refused(*_pair(), opt_level=level)

    assert message.startswith(f"opt_level={level!r} must be 'O0', 'O1', 'O2' or 'O3'")
    assert message.endswith(hint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_scale": "dynamik"}, "loss_scale='dynamik' must be a number above 0, or 'dynamic'"),
        ({"loss_scale": 0}, "loss_scale=0 must be a number above 0"),
        ({"loss_scale": float("nan")}, "loss_scale=nan must be"),
        ({"keep_batchnorm_fp32": "yes", "opt_level": "O2"}, "keep_batchnorm_fp32='yes' must be True or False"),
        ({"keep_batchnorm_fp32": True}, "keep_batchnorm_fp32=True cannot be used with opt_level='O1'"),
        ({"master_weights": True}, "master_weights=True cannot be used with opt_level='O1'"),
        ({"cast_model_type": torch.float16}, "cast_model_type=torch.float16 cannot be used with opt_level='O1'"),
        ({"cast_model_type": torch.int8, "opt_level": "O2"}, "cast_model_type=torch.int8 must be"),
        ({"patch_torch_functions": True, "opt_level": "O2"}, "patch_torch_functions=True cannot be used with"),
        ({"num_losses": 0}, "num_losses=0 must be a whole number from 1 on"),
    ],
)
def test_an_invalid_option_is_an_error(options: dict[str, Any], message: str) -> None:
    assert _refused(*_pair(), **options).startswith(message)


@pytest.mark.parametrize("scale", [-1, -1.0, "-1", "dynamic", None])
def test_minus_1_is_a_dynamic_scale(scale: Any) -> None:
    amp.initialize(*_pair(), loss_scale=scale, verbosity=0)

    assert amp.state_dict() == {"loss_scaler0": {"loss_scale": 65536.0, "unskipped": 0}}


def test_a_model_or_optimizer_on_the_cpu_is_an_error() -> None:
    model, optimizer = _pair("cpu")
    assert _refused(model, optimizer) == ("weight of Linear is on cpu: call model.to('sdaa') before amp.initialize")
    other = nn.Linear(2, 2).sdaa()
    assert _refused(other, optimizer).startswith("SGD has a parameter on cpu: call model.to('sdaa') first")
    assert _refused(other, _pair()[1]).startswith("SGD has no parameter of these models")


def test_initializing_twice_is_an_error() -> None:
    model, optimizer = _pair()
    amp.initialize(model, optimizer, verbosity=0)
    assert _refused(model, optimizer).startswith("this Linear was already passed to amp.initialize;")
    assert _refused(_pair()[0], optimizer).startswith("this SGD was already passed to amp.initialize;")


def test_an_error_has_no_effect() -> None:
    model, optimizer = _pair()
    _refused(model, [optimizer, _pair("cpu")[1]], opt_level="O2")

    assert model.weight.dtype == torch.float32
    assert not hasattr(optimizer, "_amp_stash")
    assert model(torch.ones(1, 2, device="sdaa")).dtype == torch.float32


def test_arguments_of_other_types_are_errors() -> None:
    model, optimizer = _pair()

    assert _refused(model.parameters(), optimizer) == (
        "models must be one torch.nn.Module or a list of them, not generator"
    )
    assert _refused(model, model) == "optimizers must be one torch.optim.Optimizer or a list of them, not Linear"
    assert _refused(nn.Linear(2, 2).sdaa().half()).startswith("weight of Linear is float16 already")


def test_use_before_initialization_is_an_error() -> None:
    model, optimizer = _pair()
    with pytest.raises(RuntimeError, match=r"^amp.scale_loss before amp.initialize"):
        amp.scale_loss(model.weight.sum(), optimizer).__enter__()
    with pytest.raises(RuntimeError, match=r"before amp.initialize"):
        amp.state_dict()


def test_an_unknown_loss_id_or_optimizer_is_an_error() -> None:
    model, optimizer = amp.initialize(*_pair(), verbosity=0)
    with pytest.raises(IndexError, match=r"^loss_id=1 .*below 1, .*num_losses"):
        amp.scale_loss(model.weight.sum(), optimizer, loss_id=1).__enter__()
    with pytest.raises(RuntimeError, match=r"^this SGD .*amp.initialize"):
        amp.scale_loss(model.weight.sum(), _pair()[1]).__enter__()


def test_a_step_without_unscaled_gradients_is_an_error() -> None:
    model, optimizer = amp.initialize(*_pair(), opt_level="O2", verbosity=0)
    x = torch.ones(1, 2, device="sdaa")
    model(x).sum().backward()
    with pytest.raises(RuntimeError, match=r"^optimizer.step\(\) without amp.scale_loss"):
        optimizer.step()
    with amp.scale_loss(model(x).sum(), optimizer, delay_unscale=True) as scaled:
        scaled.backward()
    with pytest.raises(RuntimeError, match="still scaled"):
        optimizer.step()
    with pytest.raises(RuntimeError, match=r"step\(closure\) .*master weights"):
        optimizer.step(lambda: None)


def test_the_printed_options(capsys: Any) -> None:
    amp.initialize(*_pair(), opt_level="O2", loss_scale=128.0)
    amp.initialize(*_pair(), opt_level="O1", verbosity=0)

    assert capsys.readouterr().out == (
        "apex.amp of torch_sdaa, O2: weights float16, batch norm float32, master weights float32, loss scale 128.0\n"
    )


def test_arguments_are_returned_in_their_structure() -> None:
    model, optimizer = _pair()
    assert amp.initialize(model, verbosity=0) is model
    models, optimizers = amp.initialize([_pair()[0]], [], verbosity=0)
    assert isinstance(models, list)
    assert optimizers == []
    assert optimizer.param_groups[0]["params"][0] is model.weight


# --------------------------------------------------------------------------------------------------------- parallel


def test_batch_norms_of_several_processes() -> None:
    model = ours.parallel.convert_syncbn_model(nn.Sequential(nn.BatchNorm2d(3), nn.Linear(2, 2)), channel_last=True)

    assert isinstance(model[0], ours.parallel.SyncBatchNorm)
    assert ours.parallel.SyncBatchNorm is nn.SyncBatchNorm


def test_unsupported_arguments_of_apex_ddp_are_errors() -> None:
    with pytest.raises(ValueError, match=r"^gradient_average=False of apex"):
        ours.parallel.DistributedDataParallel(nn.Linear(2, 2), gradient_average=False)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif("tccl" not in torch.distributed.Backend.backend_list, reason="the backend tccl is not there")
def test_a_parallel_model_trains_with_amp(tmp_path: Path) -> None:
    """In one process: the wrapper accepts amp's results."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch_sdaa\n"
        "from apex import amp\n"
        "from apex.parallel import DistributedDataParallel\n"
        "import sys\n"
        "torch.distributed.init_process_group('tccl', init_method='file://' + sys.argv[1], rank=0, world_size=1)\n"
        "model = torch.nn.Linear(2, 2).sdaa()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "model, optimizer = amp.initialize(model, optimizer, opt_level='O2', verbosity=0)\n"
        "model = DistributedDataParallel(model, delay_allreduce=True)\n"
        "before = model.state_dict()['module.weight'].clone()\n"
        "with amp.scale_loss(model(torch.ones(1, 2, device='sdaa')).sum() / 64, optimizer) as scaled:\n"
        "    scaled.backward()\n"
        "optimizer.step()\n"
        "after = model.state_dict()['module.weight']\n"
        "print(after.dtype, bool((after != before).all()))\n"
        "torch.distributed.destroy_process_group()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store")], capture_output=True, text=True, timeout=300
    )

    assert done.stdout == "torch.float32 True\n", done.stderr
