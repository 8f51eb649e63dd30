"""Time of a training step of fourteen networks: on sdaa and on the CPU, each uncompiled and compiled.

The CPU compiles with inductor, the device with backend ``sdaa``. All compute on this machine with one thread, one after
the other, in an order that changes every round. Printed are medians of the process's CPU time, which other programs
change less than the wall time; the JSON has both. The times are those of this machine, not of a card; simulated time of
the device's step is printed beside them. Weights are random, and no loss is reported: only the time counts.
``--write`` puts each row into the table of the documentation as soon as it is measured, so that a run of some of the
models completes the table of an earlier run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from parts.bench import ROOT, arguments, finish, median

import torch_sdaa  # noqa: F401 - makes the device
from utils.export.networks.torchvision_models import import_torchvision

IMAGES = ("resnet18", "resnet50", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x1_0", "squeezenet1_1")
MORE_IMAGES = ("regnet_y_400mf", "convnext_tiny", "vit_b_16")
SIDE, BATCH, TOKENS = 96, 4, 32
"""Pixels of a side, samples, and words of a sentence."""

_SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512, "hidden_size": 128}
_WORDS = {"vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

WAYS = ("CPU", "CPU inductor", "sdaa", "sdaa compiled")

PAGE = ROOT / "docs" / "how-to" / "training_performance.md"
PAGES = (PAGE, PAGE.with_name("training_performance.zh-CN.md"))
BEGIN, END = "<!-- step times: begin -->\n", "<!-- step times: end -->"


class Recurrent(torch.nn.Module):
    """A language model with an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers = torch.nn.Embedding(1000, 128), torch.nn.LSTM(128, 128, 2, batch_first=True)
        self.out = torch.nn.Linear(128, 1000)

    def forward(self, x: torch.Tensor) -> Any:
        """Return scores of the next word."""
        return self.out(self.layers(self.words(x))[0])


def _text(kind: str) -> Callable[[], torch.nn.Module]:
    config = getattr(transformers, f"{kind}Config")
    model = getattr(transformers, {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}.get(kind, f"{kind}Model"))
    more = {"n_layer": 2, "n_head": 4, "n_embd": 128} if kind == "GPT2" else _SMALL
    return lambda: model(config(**_WORDS, **more))


TEXTS: dict[str, Callable[[], torch.nn.Module]] = {
    "bert": _text("Bert"),
    "roberta": _text("Roberta"),
    "gpt2": _text("GPT2"),
    "llama": _text("Llama"),
    "lstm": Recurrent,
}
MODELS = (*IMAGES, *MORE_IMAGES, *TEXTS)


@dataclass
class Step:
    """A training step of a model on one device, and how it failed if it did."""

    run: Callable[[], None]
    failed: str = ""


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a network without random layers, and a batch."""
    torch.manual_seed(0)
    if name in TEXTS:
        model, x = TEXTS[name](), torch.randint(3, 1000, (BATCH, TOKENS))
    else:
        more = {"image_size": SIDE} if name.startswith("vit") else {}
        model, x = getattr(import_torchvision().models, name)(**more), torch.randn(BATCH, 3, SIDE, SIDE)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    return model.train(), x


def step(name: str, way: str, autocast: str | None) -> Callable[[], None]:
    """Return a training step: forward (in ``autocast``'s dtype, where given), backward and SGD with momentum."""
    device = way.split()[0].lower()
    model, x = network(name)
    model, x = model.to(device), x.to(device)
    called: Any = model
    if way == "CPU inductor":
        called = torch.compile(model)
    elif way == "sdaa compiled":
        called = torch.compile(model, backend="sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)

    def run() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, getattr(torch, autocast)) if autocast else nullcontext():
            made = called(x)
        first = made if isinstance(made, torch.Tensor) else made[0]
        first.float().square().mean().backward()
        optimizer.step()
        torch.sdaa.synchronize()

    return run


def prepared(name: str, way: str, warm: int, autocast: str | None) -> Step:
    """Return a step that has run ``warm`` times; a network that a compiler rejects has the reason."""
    run = step(name, way, autocast)
    try:
        for _ in range(warm):
            run()
    except Exception as error:  # noqa: BLE001 -- the other ways are still measured
        return Step(run, f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")
    return Step(run)


def simulated(run: Callable[[], None]) -> float:
    """Return the milliseconds of a step on the device's clock."""
    first, last = (torch.sdaa.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    torch.sdaa.synchronize()
    return float(first.elapsed_time(last))


def measured(name: str, ways: tuple[str, ...], rounds: int, warm: int, autocast: str | None = None) -> dict[str, Any]:
    """Return CPU and wall milliseconds of a step by way, all rounds, and simulated milliseconds of the device."""
    torch.compiler.reset()
    steps = {way: prepared(name, way, warm, autocast) for way in ways}
    found: dict[str, Any] = {way: [] for way, one in steps.items() if not one.failed}
    wall: dict[str, Any] = {f"{way}, wall": [] for way in found}
    for turn in range(rounds):
        order = list(found)
        for way in order[turn % len(order) :] + order[: turn % len(order)]:
            begun, used = time.perf_counter(), time.process_time()
            steps[way].run()
            found[way].append(1e3 * (time.process_time() - used))
            wall[f"{way}, wall"].append(1e3 * (time.perf_counter() - begun))
    for way in [way for way in found if way.startswith("sdaa")]:
        found[f"{way}, simulated"] = [simulated(steps[way].run)]
    return found | wall | {f"{way}, failed": one.failed for way, one in steps.items() if one.failed}


def take_steps(name: str, autocast: str | None) -> None:
    """Print the CPU milliseconds of a compiled step on the device after each line of standard input."""
    prepared_step = prepared(name, "sdaa compiled", 3, autocast)
    sys.stdout.write("ready\n" if not prepared_step.failed else f"{prepared_step.failed}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        used = time.process_time()
        prepared_step.run()
        sys.stdout.write(f"{1e3 * (time.process_time() - used)}\n")
        sys.stdout.flush()


def head(ways: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the columns of numbers, and the first two lines of the table."""
    columns = [*ways, *(f"{way}, simulated" for way in ways if way.startswith("sdaa"))]
    return columns, f"| ms of a step | {' | '.join(columns)} | date |\n|---|{'---:|' * len(columns)}---|"


def write_row(page: Path, title: str, line: str) -> None:
    """Put a row into the table of a page, in place of the model's earlier row; rows are in the order of ``MODELS``.

    A table that is there keeps its title, which may be in another language.
    """
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    earlier, after = rest.split(END)
    title = "\n".join(earlier.splitlines()[:2]) or title
    rows = {row.split("|")[1].strip(): row for row in (*earlier.splitlines()[2:], line)}
    table = "\n".join([title, *(rows[name] for name in MODELS if name in rows)])
    page.write_text(f"{before}{BEGIN}{table}\n{END}{after}", encoding="utf-8")


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="which; default: all")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="which; default: all")
    parser.add_argument("--rounds", type=int, default=7, help="measured steps of each way")
    parser.add_argument("--autocast", choices=("float16", "bfloat16"), help="mixed precision; default: float32")
    parser.add_argument(
        "--turns", action="store_true", help="a compiled step of the first model for each line of input"
    )
    parser.add_argument("--write", action="store_true", help=f"put the rows into the table of {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    if args.write and (args.quick or args.autocast or set(args.ways) != set(WAYS)):
        parser.error("--write: the page's table has all ways in float32: leave out --ways, --autocast and --quick")
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: must be at least 1")
    torch.set_num_threads(1)
    if args.turns:
        take_steps(args.models[0], args.autocast)
        return 0
    rounds, warm = (1, 1) if args.quick else (args.rounds, 2)
    ways = tuple(way for way in WAYS if way in args.ways)
    columns, title = head(ways)
    print(title, flush=True)
    rows = {}
    for name in args.models:
        rows[name] = found = measured(name, ways, rounds, warm, args.autocast)
        cells = [f"{median(found[way]):.4g}" if way in found else "failed" for way in columns]
        line = f"| {name} | {' | '.join(cells)} | {datetime.now().astimezone().date()} |"
        print(line, flush=True)
        if args.write:
            for page in PAGES:
                write_row(page, title, line)
        for way, why in found.items():
            if way.endswith("failed"):
                print(f"{name}, {way}: {why}", file=sys.stderr)
    finish(
        "training_step",
        {"steps_ms": rows, "autocast": args.autocast, "batch": BATCH, "side": SIDE, "tokens": TOKENS},
        args,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
