"""Train one step of a network compiled by torch.compile for the card, and keep all intermediate files.

Writes, below --out and for each stage (forward, backward): the ONNX model, the inputs and outputs of the step (.npz)
and a saved engine; then runs the saved engine on the simulated card, and compares it with the step's outputs and
with the reference, target onnx. The step itself is compared with the uncompiled one, both against float64. report.json
contains all printed values. --reopen skips the training: it opens the files of an earlier run in --out and compares
them again.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2])]
from engine import ConfigError, DataError, EngineSpec, ModelError, TecoInferError, add_version, open_engine
from engine.measures import differences
from engine.sdaa import CARD_VARIABLE, CARDS, saved_path
from tecoinfer_modelzoo.extra import needed
from tecoinfer_modelzoo.files import write_file
from utils.arrays import read_npz
from utils.pipeline import cli
from utils.places import check_folder

with needed(__file__):
    import torch
    import transformers

MODELS = ("resnet50", "bert-large")
WARM = 3
"""Warm steps that are measured."""

SIZES = {"resnet50": (33, 1024), "bert-large": (1, 512)}
"""Smallest and largest size. A smaller image gives a batch norm one value per channel, which cannot be trained on."""

ALIKE = 0.01
"""Largest distance of a saved engine's outputs from the step's; more threads sum in another order."""

SCHEMA_VERSION = 1
"""Version of ``report.json``."""


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one line, as all others."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a :class:`ConfigError`."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add_version(parser)
    add = parser.add_argument
    chips = sorted(path.stem for path in CARDS.glob("*.yaml"))
    add("--chip", default="t1", choices=chips, help="the card (default: t1)")
    add("--debug", default="", choices=("", "const_name"), help="const_name: files are called the same in every run")
    add("--model", default="resnet50", choices=MODELS, help="default: resnet50")
    add("--seed", type=int, default=0, help="of weights and inputs (default: 0)")
    add("--layers", type=int, default=24, help="of bert-large (default: 24)")
    add("--size", type=int, default=0, help="side of resnet50's image, or bert-large's tokens (default: 224, 128)")
    add("--out", type=Path, default=HERE / "artefacts", metavar="DIR", help="folder of the files (default: artefacts)")
    add("--reopen", action="store_true", help="only open what lies in --out, and compare it again")
    args = parser.parse_args()
    least, most = SIZES[args.model]
    if not 1 <= args.layers <= 24:
        raise ConfigError(f"--layers {args.layers}: bert-large has 1 to 24")
    if args.size and not least <= args.size <= most:
        raise ConfigError(f"--size {args.size}: {args.model} takes {least} to {most}, 0 for its own")
    if not 0 <= args.seed < 2**63:
        raise ConfigError(f"--seed {args.seed}: give 0 to 2**63 - 1")
    return args


def network(args: argparse.Namespace) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a network with random weights, in training without dropout, and one input."""
    torch.manual_seed(args.seed)
    if args.model == "resnet50":
        import torchvision  # behind torch_sdaa, which eases its import

        size = args.size or 224
        return torchvision.models.resnet50().train(), torch.randn(1, 3, size, size)
    config = transformers.BertConfig(
        hidden_size=1024,
        num_hidden_layers=args.layers,
        num_attention_heads=16,
        intermediate_size=4096,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    tokens = torch.randint(0, config.vocab_size, (1, args.size or 128))
    return transformers.BertForPreTraining(config).train(), tokens


def step(model: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Run forward and backward; return the loss."""
    model.zero_grad()
    made = model(inputs)
    loss = made.square().mean() if isinstance(made, torch.Tensor) else made[0].square().mean() + made[1].square().mean()
    loss.backward()
    return loss


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients on the host."""
    return {name: p.grad.detach().cpu() for name, p in model.named_parameters() if p.grad is not None}


def error(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """Return the distance to the exact gradients, relative to their norm."""
    apart = sum(float(((found[name].double() - exact[name]) ** 2).sum()) for name in exact)
    return float((apart / sum(float((each**2).sum()) for each in exact.values())) ** 0.5)


def timed(model: Any, inputs: torch.Tensor) -> tuple[float, float, float]:
    """Return the seconds of a warm step: wall time, CPU time and simulated time."""
    first, last = (torch.sdaa.Event(enable_timing=True) for _ in range(2))
    began, busy = time.perf_counter(), time.process_time()
    first.record()
    step(model, inputs)
    last.record()
    torch.sdaa.synchronize()
    return time.perf_counter() - began, time.process_time() - busy, first.elapsed_time(last) / 1e3


def warm(models: dict[str, Any], inputs: torch.Tensor) -> dict[str, dict[str, float]]:
    """Print and return the medians of warm steps, which alternate so that other load affects all alike.

    In seconds: wall time, CPU time and simulated time.
    """
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    medians = {}
    for _ in range(WARM + 1):
        for name, model in models.items():
            found[name].append(timed(model, inputs))
    for name, times in found.items():  # the first of each is not counted: its memory is still to be found
        wall, busy, simulated = (statistics.median(column) for column in zip(*times[1:], strict=True))
        host = f"{wall:.2f} s on this machine ({busy:.2f} s of its cores)"
        print(f"{name}: warm step {host}, {simulated * 1e3:.2f} ms simulated")
        medians[name] = {"wall_s": wall, "cores_s": busy, "simulated_s": simulated}
    return medians


def compared(path: Path) -> list[dict[str, Any]]:
    """Open a stage's saved engine, run it on the step's inputs, compare, and print and return the distance.

    Args:
        path: the stage's model, with its ``.npz`` and saved engine beside it.
    """
    stored = read_npz(path.with_suffix(".npz"), fix="run this again without --reopen")
    inputs = [array for name, array in stored.items() if name.startswith("input_")]
    outputs = [array for name, array in stored.items() if name.startswith("output_")]
    found = []
    for target, ckpt in (("sdaa", saved_path(path)), ("onnx", path)):
        with open_engine(target, spec_of(ckpt)) as engine:
            made = engine(inputs)
        made = made if isinstance(made, list) else [made]
        if len(made) != len(outputs):
            raise DataError(f"{ckpt} gives {len(made)} outputs, and {path.stem}.npz has {len(outputs)}: run this again")
        for place, (a, b) in enumerate(zip(made, outputs, strict=True)):
            if a.shape != b.shape:
                shapes = f"{list(a.shape)}, and output_{place} of {path.stem}.npz is {list(b.shape)}"
                raise DataError(f"{ckpt}: output {place} is {shapes}: run this again without --reopen")
        worst = max(differences([a], b, 0.0)[0].diff2 for a, b in zip(made, outputs, strict=True))
        print(f"{ckpt.name} on target {target}: {len(made)} outputs, largest difference {worst:.3g}")
        apart = together(made, outputs)
        if not apart <= ALIKE:
            raise DataError(
                f"{ckpt} on target {target} is {apart:.3g} away from what the step gave, {path.stem}.npz (rounding "
                f"gives less than {ALIKE}): one of both files was changed; run this again without --reopen"
            )
        found.append({"file": ckpt.name, "target": target, "outputs": len(made), "largest_diff2": float(worst)})
    return found


def together(made: list[Any], outputs: list[Any]) -> float:
    """Return the distance of all outputs from those of the step, relative to their norm; NaN if an output has NaN.

    A single output may consist of rounding errors only, such as the gradient of a key's bias.
    """
    apart = sum(float(((a.astype(float) - b) ** 2).sum()) for a, b in zip(made, outputs, strict=True))
    length = sum(float((b.astype(float) ** 2).sum()) for b in outputs)
    return float((apart / length) ** 0.5) if length else apart


def spec_of(ckpt: Path, **more: Any) -> EngineSpec:
    """Return the options of a stage's engine."""
    return EngineSpec(ckpt=ckpt, dtype="float32", divided=False, batch_size=1, **more)


def reopened(out: Path) -> int:
    """Compare the files of an earlier run, stage by stage.

    Raises:
        DataError: they are missing, are of another version, or differ from the step's outputs.
    """
    paths = sorted(out.glob("*.onnx"))
    if not paths:
        raise DataError(f"--out {out} has no model of a stage; run this without --reopen first")
    for path in paths:
        try:
            compared(path)
        except ModelError as error:
            raise DataError(f"{error}; or run this again without --reopen") from error
    return 0


def trained(args: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """Train a step, compiled and uncompiled; print and return the distances from float64 and the times."""
    import torch_sdaa

    model, inputs = network(args)
    device = torch.device("sdaa:0")
    plain = copy.deepcopy(model).to(device)
    step(plain, inputs.to(device))
    uncompiled = gradients(plain)

    options = {"keep": str(args.out), "const_name": args.debug == "const_name"}
    own = copy.deepcopy(model).to(device)
    compiled = torch.compile(own, backend=torch_sdaa.aot_backend, options=options)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
    step(compiled, inputs.to(device))
    found = gradients(own)
    times = warm({"not compiled": plain, "compiled": compiled}, inputs.to(device))
    optimizer.step()
    report = torch_sdaa.dynamo.report()
    print(report)
    del plain, own, compiled, optimizer
    gc.collect()

    exact = model.double()
    step(exact, inputs.double() if inputs.is_floating_point() else inputs)
    reference = gradients(exact)
    far = {"compiled": error(found, reference), "not compiled": error(uncompiled, reference)}
    print("gradients against float64: " + ", ".join(f"{name} {value:.3g}" for name, value in far.items()))
    return {"warm_step": times, "gradients_against_float64": far}, report


def explained(error: Exception) -> Exception:
    """Return the zoo's error that stopped PyTorch's compiler, if there is one."""
    cause = getattr(error, "inner_exception", None)
    return cause if isinstance(cause, TecoInferError) else error


def main() -> int:
    """Compile, train a step, save and compare."""
    args = arguments()
    os.environ[CARD_VARIABLE] = args.chip
    check_folder("--out", args.out)
    if args.reopen:
        return reopened(args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        figures, report = trained(args)
    except torch._dynamo.exc.BackendCompilerFailed as failed:
        raise explained(failed) from failed
    compared_with = []
    for plan in (plan for graph in report.graphs for part in graph.partitions for plan in part.plans):
        path = args.out / f"{plan.file}.onnx"
        open_engine("sdaa", spec_of(path, save_engine=True)).release()
        compared_with += compared(path)
    asked = {"chip": args.chip, "model": args.model, "layers": args.layers, "size": args.size, "seed": args.seed}
    content = {"schema_version": SCHEMA_VERSION, **asked, **figures, "engines": compared_with}
    text = json.dumps({**content, "compiled": json.loads(report.to_json())}, indent=1)
    write_file(args.out / "report.json", text.encode())
    return 0


if __name__ == "__main__":
    cli.run(main)
