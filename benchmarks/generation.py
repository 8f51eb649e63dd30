"""Tokens per second of a decoder with planned caches, of transformers' ``generate`` and of a loop without a cache.

One network with one set of random weights, greedy, in turn: each round runs every method once, and the median of all
rounds is printed with its ratio to transformers. All methods must give the same tokens.

    python benchmarks/generation.py --layers 4 --width 256 --new 64

``--cache`` also runs a graph that returns the whole cache instead of the new keys and values.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine import Engine, EngineSpec, open_engine
from utils.export.networks.gpt_decoder import Form, GptDecoder, cache_names, example
from utils.export.networks.transformers_detectors import transformers
from utils.export.torch_export import export_onnx
from utils.postprocess.text.sampling import Chooser, Sampling
from utils.tasks.common.generation import Decoder, Limits, Plans, generate
from utils.tasks.model import Model

OTHER = "transformers"


class WholeCache(GptDecoder):
    """The same network, which returns old and new keys and values together."""

    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the logits, and each cache with the new slots after the old ones."""
        logits, *new = super().forward(ids, positions, mask, *past)
        return (logits, *(torch.cat(pair, dim=2) for pair in zip(past, new, strict=True)))


def written(network: GptDecoder, folder: Path, name: str) -> Path:
    """Export a network and return its file."""
    form = network.form
    axes = {key: {0: "batch", 1: "tokens"} for key in ("input_ids", "position_ids")}
    axes["attention_mask"] = {0: "batch", 1: "slots"}
    axes |= {key: {0: "batch", 2: "slots"} for key in cache_names(form.layers, "past")}
    (made,) = export_onnx(
        network,
        list(example(form)),
        folder / name,
        input_names=list(axes),
        output_names=["logits", *cache_names(form.layers, "new")],
        dynamic=axes,
        forms=("dyn",),
        exporter="torchscript",
    )
    return made.path


def theirs(network: GptDecoder) -> torch.nn.Module:
    """Return transformers' model with the same weights."""
    form, library = network.form, transformers()
    config = library.GPT2Config(
        vocab_size=form.vocabulary,
        n_positions=form.positions,
        n_embd=form.width,
        n_layer=form.layers,
        n_head=form.heads,
        bos_token_id=None,
        eos_token_id=None,
    )
    made = library.GPT2LMHeadModel(config).eval()
    made.load_state_dict(network.state_dict(), strict=False)
    made.tie_weights()
    return made


def ways(
    network: GptDecoder, engines: dict[str, Engine], prompts: np.ndarray, new: int
) -> dict[str, Callable[[], list[list[int]]]]:
    """Return every method of generation by name."""
    other, ids = theirs(network), torch.from_numpy(prompts)

    def of_transformers(cached: bool) -> list[list[int]]:
        mask = torch.ones_like(ids)
        with torch.no_grad():
            found = other.generate(
                ids, attention_mask=mask, max_new_tokens=new, do_sample=False, pad_token_id=0, use_cache=cached
            )
        return found[:, ids.shape[1] :].tolist()

    def ours(engine: Engine) -> list[list[int]]:
        step = Decoder(engine, Model.of(engine), Plans())
        made = generate(step, list(prompts), Limits(new), Chooser(Sampling()))
        return [one.ids for one in made]

    return {
        OTHER: lambda: of_transformers(True),
        "without a cache": lambda: of_transformers(False),
        **{name: (lambda engine=engine: ours(engine)) for name, engine in engines.items()},  # type: ignore[misc]
    }


def main() -> int:
    """Run all methods in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 4), ("width", 256), ("heads", 4), ("vocabulary", 4000), ("batch", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--prompt", type=int, default=16, help="tokens of each prompt")
    parser.add_argument("--new", type=int, default=64, help="new tokens of each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", action="store_true", help="also a graph that gives back the whole cache")
    args = parser.parse_args()
    form = Form(args.vocabulary, 256, args.width, args.layers, args.heads, 4 * args.width)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = GptDecoder(form).eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.1)
    prompts = np.random.default_rng(0).integers(0, form.vocabulary, (args.batch, args.prompt))
    with tempfile.TemporaryDirectory() as name:
        files = {"onnx": ("onnx", written(network, Path(name), "new")), "cpu": ("cpu", Path(name) / "new_dyn.onnx")}
        if args.cache:
            whole = WholeCache(form).eval()
            whole.load_state_dict(network.state_dict())
            files["onnx, whole cache"] = ("onnx", written(whole, Path(name), "whole"))
        dims = {"tokens": (1, 16, 64), "slots": (64, 128, 256)}
        engines = {
            key: open_engine(target, EngineSpec(file, batch_size=args.batch, dims=dims))
            for key, (target, file) in files.items()
        }
        table(ways(network, engines, prompts, args.new), args.rounds, args.batch * args.new)
    return 0


def table(found: dict[str, Callable[[], list[list[int]]]], rounds: int, tokens: int) -> None:
    """Run every method once for its result and as warm-up, then in turn, and print the medians."""
    answers = {name: way() for name, way in found.items()}
    for name, answer in answers.items():
        assert answer == answers[OTHER], f"{name} gives other tokens than {OTHER}"
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, way in found.items():
            start = time.process_time()
            way()
            seconds[name].append(time.process_time() - start)
    base = statistics.median(seconds[OTHER])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:<20} {tokens / middle:9.1f} tokens per CPU second   {base / middle:5.2f} x {OTHER}")


if __name__ == "__main__":
    sys.exit(main())
