"""Common ``export_onnx.py`` and ``train.py`` of policies: flags, files, the return.

Usage: ``cli.run(partial(export_policy, __doc__, HERE / "ppo_cartpole", network(), "CartPole-v1"))``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from engine import add_version
from utils.datasets.episodes import RECORDED, Recording, write_recording
from utils.export.forms import add_forms
from utils.export.networks.policy_training import played
from utils.export.networks.training import save
from utils.export.torch_export import export_onnx, load_weights

SEEDS = range(1000, 1100)
"""Seeds of the evaluation episodes; training uses others."""


def export_policy(
    description: str | None,
    stem: Path,
    network: torch.nn.Module,
    environment: str,
    *,
    output: str = "logits",
    argv: Sequence[str] | None = None,
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``stem``: path and start of the names of the weights (``.pth``) and files; ``network``: observations to actions;
    ``environment``: the training environment; ``output``: name of the output.
    """
    parser = argparse.ArgumentParser(description=description)
    add_version(parser)
    weights = stem.with_suffix(".pth")
    parser.add_argument("--weights", type=Path, default=weights, help=f"state dict (default: {weights.name})")
    parser.add_argument("--out", type=Path, default=stem.parent, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args(argv)
    trained = "trained by train.py" if args.weights == weights else "given by --weights"
    provenance = {"source": f"PyTorch, {stem.name}", "weights": f"{args.weights.name}, {trained}"}
    load_weights(network, args.weights)
    write_policy(args.out / stem.name, network, environment, [output], provenance, args.forms)
    return 0


def write_policy(
    stem: Path,
    network: torch.nn.Module,
    environment: str,
    outputs: Sequence[str],
    provenance: Mapping[str, str],
    forms: Sequence[str],
    example: torch.Tensor | None = None,
) -> None:
    """Write a policy's ONNX files and print the largest relative error of each.

    Args:
        network: observations to actions. outputs: names of the outputs; the first one gives the action.
        example: observations to trace and compare on; ``None``: random ones of the first layer's width.
    """
    if example is None:
        inputs = next(layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)).in_features
        example = torch.randn(1, inputs, generator=torch.Generator().manual_seed(0))
    results = export_onnx(
        network,
        example,
        stem,
        input_names=["observation"],
        output_names=list(outputs),
        provenance=provenance,
        notes={"policy": {"env": environment, "output": outputs[0]}},
        forms=forms,
    )
    for result in results:
        print(result)


def keep_policy(network: torch.nn.Module, environment: str, weights: Path, recording: Path) -> int:
    """Write trained weights and the recorded actions of the evaluation episodes; print their mean return."""
    save(network, weights)
    rows: list[tuple[int, int, object, object]] = []
    totals = []
    for seed in SEEDS:
        episode = played(network, environment, seed)
        totals.append(episode.total)
        count = len(episode.actions)
        for step in np.unique(np.linspace(0, count - 1, min(RECORDED, count)).astype(np.int64)).tolist():
            rows.append((seed, step, episode.observations[step], episode.actions[step]))
    seeds, steps, observations, actions = (np.stack([np.asarray(row[place]) for row in rows]) for place in range(4))
    write_recording(recording, Recording(environment, seeds, steps, observations, actions))
    returns = np.array(totals)
    print(
        f"{weights.name}: mean return {returns.mean():.6f} of {len(returns)} episodes of {environment}, from "
        f"{returns.min():g} to {returns.max():g}; {len(rows)} observations in {recording.name}"
    )
    return 0
