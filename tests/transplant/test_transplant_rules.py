"""Rules on single lines: each with the line before and after, and the findings."""

# ruff: noqa: E501 - a case is a line

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from transplant.edits import KEPT, TODO, apply
from transplant.migrate import Options, migrate
from transplant.script import Script

HEAD = "import torch\n"
CARD = "import torch\nimport torch_sdaa\n"


def moved(text: str, **options: object) -> tuple[str, Script]:
    """Return a text migrated, and the script with its findings; a second run finds nothing to change."""
    script = migrate(text, Options(**options))  # type: ignore[arg-type]
    new = apply(text, script.edits)
    again = migrate(new, Options(**options))  # type: ignore[arg-type]
    assert again.edits == []
    assert apply(new, script.inverse()) == text
    return new, script


def line(before: str, **options: object) -> str:
    """Return the converted form of a line after ``import torch``."""
    new, _ = moved(HEAD + before, **options)
    return new.removeprefix(CARD) if new.startswith(CARD) else new.removeprefix(HEAD)


def findings(text: str, kind: str = TODO, **options: object) -> list[str]:
    return [found.what for found in moved(text, **options)[1].findings if found.kind == kind]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.set_device(1)  # keep", "torch.sdaa.set_device(1)  # keep"),
        ("x = torch . cuda\\\n  .current_device ( )", "x = torch . sdaa\\\n  .current_device ( )"),
        ("T = torch\nT.cuda.synchronize()", "T = torch\nT.sdaa.synchronize()"),
        ("c = torch.cuda\nc.synchronize()", "c = torch.sdaa\nc.synchronize()"),
        ("class A:\n    t = torch\n    def f(self):\n        self.torch.cuda.empty_cache()", None),
        ("x.cuda(non_blocking = True).half()", "x.sdaa(non_blocking = True).half()"),
        ("y = map(torch.Tensor.cuda, xs)", "y = map(torch.Tensor.sdaa, xs)"),
        ("torch.nn.Module.cuda(m)", "torch.nn.Module.sdaa(m)"),
        ("ok = x.is_cuda and not y.is_cuda", "ok = x.is_sdaa and not y.is_sdaa"),
        ("@torch.jit.script\ndef f(x):\n  return not x.is_cuda, x.to('cuda').cuda()", "@torch.jit.script\ndef f(x):\n  return not (x.device.type == \"sdaa\"), x.to('sdaa').to(\"sdaa\")"),
        ("class A:\n  def f(self, x): return x.is_cuda\na = torch.jit.script(A())", "class A:\n  def f(self, x): return (x.device.type == \"sdaa\")\na = torch.jit.script(A())"),
        ("x = torch.cuda.FloatTensor(3)", "x = torch.sdaa.FloatTensor(3)"),
        ("x = x.type('torch.cuda.HalfTensor')", "x = x.type('torch.sdaa.HalfTensor')"),
        ("with torch.autocast('cuda', enabled=a): pass", "with torch.autocast('sdaa', enabled=a): pass"),
        ("s = torch.amp.GradScaler(device=\"cuda\")", "s = torch.amp.GradScaler(device=\"sdaa\")"),
        ("d = torch.device(f'cuda:{i}')", "d = torch.device(f'sdaa:{i}')"),
        ("d = 'cuda:' + str(i)", "d = 'sdaa:' + str(i)"),
        ("d = 'cuda:%d' % i", "d = 'sdaa:%d' % i"),
        ("d = 'cuda:{}'.format(i)", "d = 'sdaa:{}'.format(i)"),
        ("d = r'cuda:1'", "d = r'sdaa:1'"),
        ("m = torch.load(f, 'cuda')", "m = torch.load(f, 'sdaa')"),
        ("m = torch.load(f, map_location={'cuda:0': 'cuda:1'})", "m = torch.load(f, map_location={'sdaa:0': 'sdaa:1'})"),
        ("d = 'cuda' if a else 'cpu'", "d = 'sdaa' if a else 'cpu'"),
        ("b = 'nccl' if torch.cuda.is_available() else 'gloo'", "b = 'tccl' if torch.sdaa.is_available() else 'gloo'"),
        ("if x.device.type == 'cuda': pass", "if x.device.type == 'sdaa': pass"),
        ("if str(x.device).startswith('cuda'): pass", "if str(x.device).startswith('sdaa'): pass"),
        ("if 'cuda' in args.device: pass", "if 'sdaa' in args.device: pass"),
        ("if kind in ('cuda', 'cpu'): pass", "if kind in ('sdaa', 'cpu'): pass"),
        ("def f(device='cuda'): pass", "def f(device='sdaa'): pass"),
        ("def device():\n    return 'cuda'", "def device():\n    return 'sdaa'"),
        ("c = {'device': 'cuda', 'n': 1}", "c = {'device': 'sdaa', 'n': 1}"),
        ("c = {'cuda': 1, 'cpu': 2}", "c = {'sdaa': 1, 'cpu': 2}"),
        ("match device.type:\n    case 'cuda': pass", "match device.type:\n    case 'sdaa': pass"),
        ("p.add_argument('--device', default='cuda')", "p.add_argument('--device', default='sdaa')"),
        ("p.add_argument('--where', choices=['cpu', 'cuda'])", "p.add_argument('--where', choices=['cpu', 'sdaa'])"),
        ("p.add_argument('--dist-backend', default='nccl')", "p.add_argument('--dist-backend', default='tccl')"),
        ("import torch.distributed as d\nd.init_process_group('nccl')", None),
        ("d.init_process_group('cpu:gloo,cuda:nccl')", "d.init_process_group('cpu:gloo,sdaa:tccl')"),
        ("DataLoader(a, pin_memory_device='cuda')", "DataLoader(a, pin_memory_device='sdaa')"),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'", "import os\nos.environ['SDAA_VISIBLE_DEVICES'] = '1'"),
        ("e = dict(os.environ, CUDA_VISIBLE_DEVICES='1')", "e = dict(os.environ, SDAA_VISIBLE_DEVICES='1')"),
        ("d = torch.device(type='cuda', index=1)", "d = torch.device(type='sdaa', index=1)"),
        ("a = torch.profiler.ProfilerActivity.CUDA", "a = torch.profiler.ProfilerActivity.PrivateUse1"),
        ("t.table(sort_by='cuda_time_total')", "t.table(sort_by='device_time_total')"),
        ("torch.autograd.profiler.profile(use_cuda=True)", 'torch.autograd.profiler.profile(use_device="sdaa")'),
        ("class M(torch.nn.Module):\n    def cuda(self, d=None):\n        return super().cuda(d)", None),
        ("b = torch.distributed.Backend.NCCL", "b = torch.distributed.Backend.TCCL"),
        ("ok = torch.distributed.is_nccl_available()", 'ok = torch.distributed.is_backend_available("tccl")'),
    ],
)  # fmt: skip
def test_a_line(before: str, after: str | None) -> None:
    found = line(before)
    if after is None:
        after = before.replace("cuda", "sdaa").replace("nccl", "tccl")
    assert found == after
    assert findings(HEAD + before) == []


@pytest.mark.parametrize(
    "text",
    [
        "print('cuda', f'cuda:{i}', 'cuda:0')",
        "raise RuntimeError('no cuda here')",
        "p.add_argument('--no-cuda', help='without cuda')",
        "'''A text about torch.cuda.'''",
        "args.cuda = True\nif args.cuda: pass",
        "use_cuda = True\nf(use_cuda=use_cuda)",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cudnn.benchmark = True",
        "path = '/usr/local/cuda/bin'",
        "os.environ['NCCL_DEBUG'] = 'INFO'",
        "from . import cuda\ncuda.f()",
        "self.is_cuda = 1\nif self.is_cuda: pass",
    ],
)
def test_unchanged_places_need_no_manual_work(text: str) -> None:
    assert line(text) == text
    assert findings(HEAD + text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("getattr(torch, 'cuda')", "getattr(torch, 'cuda')"),
        ("g = torch.cuda.CUDAGraph()", "torch.cuda.CUDAGraph"),
        ("torch.cuda.nvtx.range_push('a')", "torch.cuda.nvtx.range_push"),
        ("torch.cuda.memory._record_memory_history()", "torch.cuda.memory._record_memory_history"),
        ("import pynvml", "pynvml"),
        ("from numba import cuda\ncuda.jit(f)", "cuda"),
        ("from torch.utils.cpp_extension import CUDAExtension", "CUDAExtension"),
        ("model = torch.nn.DataParallel(model)", "torch.nn.DataParallel"),
        ("words = ['cuda']", "'cuda'"),
        ("table = {'cuda': 1}", "'cuda'"),
        ("exec('x = torch.cuda.current_device()')", "'x = torch.cuda.current_device()'"),
        ("v = torch.version.cuda", "torch.version.cuda"),
        ("run(cmd, CUDA_VISIBLE_DEVICES='0')", "CUDA_VISIBLE_DEVICES"),
        ("torch.library.impl('a::b', 'CUDA')", "'CUDA'"),
        ("from apex.normalization import FusedLayerNorm", "FusedLayerNorm"),
    ],
)
def test_places_for_manual_work(text: str, what: str) -> None:
    assert line(text) == text
    found = [one for one in moved(HEAD + text)[1].findings if one.kind == TODO]
    assert what in [one.what for one in found]
    assert all(one.fix and one.reason for one in found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch.cuda as tc\ntc.synchronize()\n", "import torch_sdaa\nimport torch.sdaa as tc\ntc.synchronize()\n"),
        ("from torch import cuda, nn\ncuda.f = cuda.Event()\n", "import torch_sdaa\nfrom torch import sdaa, nn\nsdaa.f = sdaa.Event()\n"),
        ("from torch import cuda as c\nc.Event()\n", "import torch_sdaa\nfrom torch import sdaa as c\nc.Event()\n"),
        ("from torch.cuda.amp import (\n    autocast as ac,  # a\n)\n", "import torch_sdaa\nfrom torch.sdaa.amp import (\n    autocast as ac,  # a\n)\n"),
        ("from torch.cuda import nvtx, Event\n", "import torch_sdaa\nfrom torch.cuda import nvtx; from torch.sdaa import Event\n"),
        ("from torch.cuda import (\n    nvtx,  # ranges\n    Event,  # times\n)  # all\n", "import torch_sdaa\nfrom torch.cuda import nvtx; from torch.sdaa import Event  # ranges  # times  # all\n"),
        ("from apex import amp\nimport torch\n", "import torch_sdaa\nfrom apex import amp\nimport torch\n"),
        ("import torch\nfrom apex.parallel import SyncBatchNorm\n", "import torch\nimport torch_sdaa\nfrom apex.parallel import SyncBatchNorm\n"),
        ("import torch; x = torch.zeros(1).cuda()\n", "import torch; import torch_sdaa; x = torch.zeros(1).sdaa()\n"),
        ('"""Doc."""\nfrom __future__ import annotations\nimport os\nimport torch\n\nx.cuda()\n', '"""Doc."""\nfrom __future__ import annotations\nimport os\nimport torch\nimport torch_sdaa\n\nx.sdaa()\n'),
        ("try:\n\timport torch\nexcept ImportError:\n\ttorch = None\nx.cuda()", "try:\n\timport torch\n\timport torch_sdaa\nexcept ImportError:\n\ttorch = None\nx.sdaa()"),
        ("def f():\n    import torch\n    torch.cuda.empty_cache()\n", "def f():\n    import torch\n    import torch_sdaa\n    torch.sdaa.empty_cache()\n"),
        ("import torch\r\nx.cuda()\r\n", "import torch\r\nimport torch_sdaa\r\nx.sdaa()\r\n"),
        ("import torch\n\x0c\nif a:\n\t\tx.cuda()\n", "import torch\nimport torch_sdaa\n\x0c\nif a:\n\t\tx.sdaa()\n"),
        ("x.cuda()\n", "x.sdaa()\n"),
    ],
)  # fmt: skip
def test_imports_and_where_the_card_is_imported(before: str, after: str) -> None:
    assert moved(before)[0] == after


def test_a_started_script_imports_torch_sdaa_even_without_torch() -> None:
    text = '"""Doc."""\n\n# options\nDEVICE = "cuda"\n'
    script = migrate(text, Options(), run=True)
    assert apply(text, script.edits) == '"""Doc."""\n\n# options\nimport torch_sdaa\nDEVICE = "sdaa"\n'


def test_similar_names_only_with_sim() -> None:
    text = "from apex.normalization import FusedLayerNorm\nimport apex\nn = apex.parallel.SyncBatchNorm(3)\n"
    assert apply(text, migrate(text, Options()).edits) == "import torch_sdaa\n" + text
    new = apply(text, migrate(text, Options(similar=True)).edits)
    assert "from torch.nn import LayerNorm as FusedLayerNorm\n" in new
    assert "n = torch.nn.SyncBatchNorm(3)\n" in new


def test_a_selected_device_replaces_fixed_numbers() -> None:
    text = 'import torch\nd = torch.device("cuda:1")\nx.cuda(0)\ne = torch.device("cuda", 1)\nf = f"cuda:{i}"\n'
    script = migrate(text, Options(choose=True), run=True)
    new = apply(text, script.edits)
    assert new.startswith(CARD + "import os\nimport torch\ntorch.sdaa.set_device(int(os.environ.get(")
    assert new.endswith('d = torch.device("sdaa")\nx.sdaa()\ne = torch.device("sdaa")\nf = f"sdaa:{i}"\n')
    assert migrate(new, Options(choose=True), run=True).edits == []


def test_every_reference_is_changed_or_has_a_reason() -> None:
    text = HEAD + "cuda_ok = torch.cuda.is_available()\nprint('cuda')\nself.nccl = 1\nclass CudaThing: pass\n"
    script = moved(text)[1]
    kept = [found.what for found in script.findings if found.kind == KEPT]
    assert kept == ["cuda_ok", "'cuda'", "nccl", "CudaThing"]


def test_a_package_of_cuda_is_reported_at_its_import_only() -> None:
    assert findings(HEAD + "import horovod.torch as hvd\nhvd.init()\nn = hvd.size()\n") == ["horovod.torch as hvd"]


def test_printed_texts_with_escapes_need_no_manual_work() -> None:
    assert findings(HEAD + "print('on cuda\\n', \"\\tnccl\")\n") == []
    assert findings(HEAD + "x.to('cuda\\x3a0')\n") == ["'cuda\\x3a0'"]


def test_a_long_script_takes_time_in_proportion() -> None:
    text = HEAD + "x = torch.zeros(1)\n" + "y = x.cuda()\n" * 400
    script = migrate(text, Options())
    assert len(script.edits) == 401
    assert max(map(len, script._bound.values())) >= 400  # it is kept: every later look-up is one of a dictionary


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model = torch.compile(model)", 'model = torch.compile(model, backend="sdaa")'),
        ("model = torch.compile(\n    model,  # it\n)", 'model = torch.compile(\n    model, backend="sdaa",  # it\n)'),
        ("model = torch.compile(model, dynamic=True)", 'model = torch.compile(model, dynamic=True, backend="sdaa")'),
        ("f = torch.compile(m, mode='max-autotune', fullgraph=True)", 'f = torch.compile(m, backend="sdaa", fullgraph=True)'),
        ("f = torch.compile(m, backend='inductor')", "f = torch.compile(m, backend='sdaa')"),
        ("@torch.compile\ndef f(x):\n    return x", '@torch.compile(backend="sdaa")\ndef f(x):\n    return x'),
        ("@torch.compile()\ndef f(x):\n    return x", '@torch.compile(backend="sdaa")\ndef f(x):\n    return x'),
        ("from torch import compile as c\nf = c(m)", 'from torch import compile as c\nf = c(m, backend="sdaa")'),
        ("model.compile(mode='reduce-overhead')", 'model.compile(backend="sdaa")'),
        ("model.compile(fullgraph=True)", 'model.compile(fullgraph=True, backend="sdaa")'),
        ("import functools\nc = functools.partial(torch.compile, dynamic=False)", 'import functools\nc = functools.partial(torch.compile, dynamic=False, backend="sdaa")'),
        ("from functools import partial\nc = partial(torch.compile)", 'from functools import partial\nc = partial(torch.compile, backend="sdaa")'),
        ("B = 'inductor'\nf = torch.compile(m, backend=B)", "B = 'sdaa'\nf = torch.compile(m, backend=B)"),
        ('p.add_argument("--backend", default="inductor", choices=["inductor", "eager"])\nf = torch.compile(m, backend=p.parse_args().backend, mode=None)', 'p.add_argument("--backend", default="sdaa", choices=["sdaa", "eager"])\nf = torch.compile(m, backend=p.parse_args().backend, mode=None)'),
        ("f = torch._dynamo.optimize('inductor')(m)", "f = torch._dynamo.optimize('sdaa')(m)"),
        ("f = torch._dynamo.optimize()(m)", 'f = torch._dynamo.optimize(backend="sdaa")(m)'),
        ("import torch._dynamo as dynamo\n@dynamo.optimize(backend='inductor')\ndef f(x):\n    return x", "import torch._dynamo as dynamo\n@dynamo.optimize(backend='sdaa')\ndef f(x):\n    return x"),
    ],
)  # fmt: skip
def test_compiling_uses_the_backend_of_the_card(before: str, after: str) -> None:
    assert line(before) == after
    assert findings(HEAD + before) == []


@pytest.mark.parametrize(
    "text",
    [
        "f = torch.compile(m, backend='aot_eager')",
        "f = torch._dynamo.optimize('eager')(m)",
        "title = 'inductor'\nf = torch.compile(m, backend='eager')",
        "import re\np = re.compile('a*')",
        "model.compile(optimizer=o, loss='mse')",
        "if hasattr(torch, 'compile'): pass",
    ],
)
def test_other_compilers_stay(text: str) -> None:
    assert line(text) == text
    assert findings(HEAD + text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f = torch.compile(m, **options)", "torch.compile(m, **options)"),
        ("f = torch.compile(m, mode=args.mode)", "torch.compile(m, mode=args.mode)"),
        ("f = torch.compile(m, options={'triton.cudagraphs': True})", None),
        ("use(torch.compile)", "torch.compile"),
        ("f = torch.compile(m, backend=args.backend)", "args.backend"),
        ("f = torch._dynamo.optimize(backend())(m)", "backend()"),
        ("f = torch._dynamo.optimize(*options)(m)", "torch._dynamo.optimize(*options)"),
    ],
)
def test_compilers_that_the_tool_cannot_read_are_left(text: str, what: str | None) -> None:
    assert line(text) == text
    assert findings(HEAD + text) == [what or text.removeprefix("f = ")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\nd = torch.accelerator.current_accelerator()\n", CARD + "d = torch.accelerator.current_accelerator()\n"),
        ("from torch import accelerator as a\nd = a.current_accelerator()\n", "from torch import accelerator as a\nimport torch_sdaa\nd = a.current_accelerator()\n"),
        ("from accelerate import Accelerator\n", "from accelerate import Accelerator\nimport torch_sdaa\n"),
        ("import deepspeed\n", "import deepspeed\nimport torch_sdaa\n"),
        ("import torch\nfrom transformers import Trainer\n", CARD + "from transformers import Trainer\n"),
        ("from transformers import AutoModel\n", "from transformers import AutoModel\n"),
        ("from transformers import Trainer, TrainingArguments\n", "from transformers import Trainer, TrainingArguments\nimport torch_sdaa\n"),
        ("from torchtext import accelerator\n", "from torchtext import accelerator\n"),
    ],
)  # fmt: skip
def test_scripts_that_choose_the_accelerator_need_the_import_only(before: str, after: str) -> None:
    new, script = moved(before)
    assert new == after
    assert [found for found in script.findings if found.kind == TODO] == []


def test_lightning_is_run_by_the_redirection() -> None:
    callbacks = "import lightning as L\nfrom lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint\n"
    for text in ("import lightning as L\n", "from pytorch_lightning import Trainer\n", callbacks):
        (found,) = [one for one in moved(text)[1].findings if one.kind == TODO]
        assert "torch_sdaa.run" in found.fix
        assert "CUDA's names" in found.reason
