"""Export Silero's VAD for one sample rate from its ONNX file (teco fetch silero_vad), which has two."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import EngineSpec, ModelError, add_version, open_engine
from utils.export.forms import add_forms, chosen_forms
from utils.export.graphs import with_sizes
from utils.export.onnx_files import Expected, ModelNotes, variants_of, write_onnx_files
from utils.fetch import fetched
from utils.pipeline import cli
from utils.tasks.voice_activity.steps import CHUNK, CONTEXT, KEY

HERE = Path(__file__).resolve().parent
MEMBER = "silero_vad/data/silero_vad_op18_ifless.onnx"
NAMES = {16000: "silero_vad", 8000: "silero_vad_8k"}


def of_rate(source: Path, rate: int) -> Any:
    """Return the network for one sample rate: its branch of the file, with chunks of a fixed size."""
    import onnx

    model = onnx.load(source)
    graph = model.graph
    choice = [node for node in graph.node if node.op_type == "If"]
    if len(choice) != 1 or [one.name for one in graph.input] != ["input", "sr", "state"]:
        raise ModelError(f"{source}: is not the file of silero-vad 6.2.3 with one choice of the rate; fetch that one")
    branches = {one.name: one.g for one in choice[0].attribute}
    branch = branches["then_branch" if rate == 16000 else "else_branch"]
    names = dict(zip((one.name for one in branch.output), choice[0].output, strict=True))
    nodes = list(branch.node)
    for node in nodes:
        node.output[:] = [names.get(name, name) for name in node.output]
    used = {name for node in nodes for name in node.input}
    made = onnx.helper.make_graph(
        nodes,
        "silero_vad",
        [_sized(one, CHUNK[rate] + CONTEXT[rate]) for one in graph.input if one.name != "sr"],
        list(graph.output),
        [one for one in graph.initializer if one.name in used],
    )
    made = onnx.helper.make_model(made, opset_imports=model.opset_import, ir_version=model.ir_version)
    onnx.checker.check_model(made, full_check=True)
    return made


def _sized(value: Any, width: int) -> Any:
    """Return an input with a separate dynamic size for the sequence."""
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param == "sequence":
            dim.dim_value = width
    return value


def cases(source: Path, rate: int) -> list[Expected]:
    """Return noise chunks at several levels with states, and the outputs of the original file in float32."""
    chance, found = np.random.default_rng(0), []
    with open_engine("onnx", EngineSpec(ckpt=source)) as engine:
        for count in (1, 3, 8):
            loudness = 10.0 ** chance.uniform(-3, 0, (count, 1))
            sound = (chance.standard_normal((count, CHUNK[rate] + CONTEXT[rate])) * loudness / 4).astype(np.float32)
            state = chance.uniform(-0.5, 0.5, (2, count, 128)).astype(np.float32)
            found.append(Expected([sound, state], list(engine([sound, np.array(rate, np.int64), state]))))
    return found


def main() -> int:
    """Write the forms of each rate and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--rate", type=int, nargs="+", choices=sorted(NAMES), default=[16000], help="in Hz")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    source = fetched("silero_vad") / MEMBER
    for rate in args.rate:
        tried, free = cases(source, rate), of_rate(source, rate)
        variants = variants_of(with_sizes(free, tried[0].inputs), free, tried, chosen_forms(args.forms))
        notes = ModelNotes(
            provenance={"source": f"silero-vad 6.2.3, {MEMBER}", "weights": "Silero Team, MIT"},
            sample_rate=rate,
            notes={KEY: {"chunk": CHUNK[rate], "context": CONTEXT[rate]}},
        )
        for result in write_onnx_files(args.out / NAMES[rate], variants, notes):
            print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
