"""The committed policies: what the files are, that they play as PyTorch did, and that training can be repeated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import ROOT

pytest.importorskip("gymnasium")

from engine import EngineSpec, open_engine
from utils.datasets.episodes import read_recording

HOME = ROOT / "example" / "reinforcement"
ENVIRONMENTS = {"ppo_cartpole": ("CartPole-v1", 4, 2), "ppo_acrobot": ("Acrobot-v1", 6, 3)}


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_files_have_metadata(name: str) -> None:
    env, inputs, actions = ENVIRONMENTS[name]
    for form in ("dyn", "float16_dyn"):
        model = onnx.load(HOME / name / f"{name}_{form}.onnx")
        notes = {prop.key: prop.value for prop in model.metadata_props}
        assert json.loads(notes["policy"]) == {"env": env, "output": "logits"}
        assert "train.py" in json.loads(notes["provenance"])["weights"]
        assert model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == inputs
        assert model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == actions
    assert sum(path.stat().st_size for path in (HOME / name).iterdir() if path.is_file()) < 300_000


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_the_recording_is_of_this_policy(name: str) -> None:
    recording = read_recording(HOME / name / "recorded.npz")
    assert recording.environment == ENVIRONMENTS[name][0]
    assert sorted(set(recording.seeds.tolist())) == list(range(1000, 1100))
    with open_engine("onnx", EngineSpec(ckpt=HOME / name / f"{name}_dyn.onnx", batch_size=100)) as engine:
        chosen = [
            np.asarray(engine(recording.observations[place : place + 100])).argmax(axis=1)
            for place in range(0, len(recording.seeds), 100)
        ]
    np.testing.assert_array_equal(np.concatenate(chosen), recording.actions)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_episode_equals_pytorch(tmp_path: Path) -> None:
    """The task's lanes and a plain loop over the PyTorch network are written apart and agree in every step."""
    pytest.importorskip("torch")
    from utils.export.networks.policies import Perceptron
    from utils.export.networks.policy_training import played
    from utils.export.torch_export import load_weights
    from utils.pipeline import answers
    from utils.tasks.policy_rollout.task import PolicyRollout

    for name, (env, inputs, actions) in ENVIRONMENTS.items():
        network = load_weights(Perceptron(inputs, actions), HOME / name / f"{name}.pth").eval()
        ckpt, result = HOME / name / f"{name}_dyn.onnx", tmp_path / f"{name}.json"
        words = ["--target", "onnx", "--json", str(result), "--seed", "1003"]
        assert answers.main(None, PolicyRollout, "multi", argv=words, ckpt=ckpt, batch_size=3, episodes=3) == 0
        for row in json.loads(result.read_text())["answers"]:
            episode = played(network, env, int(row["name"].removeprefix("seed ")))
            assert row["answer"]["return"] == episode.total
            assert row["answer"]["steps"] == len(episode.actions)
