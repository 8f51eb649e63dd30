"""Episodes of a policy: each by its own seed, whatever is beside it, and whatever its environment does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, load, numpy_helper, parser, save
from PIL import Image

pytest.importorskip("gymnasium")
pytest.importorskip("pygame")
import odd_environments

from engine import ConfigError, DataError, ModelError
from utils.datasets.episodes import read_recording
from utils.pipeline import answers, valid
from utils.tasks.policy_rollout.task import PolicyRollout

MODULE = odd_environments.__name__
GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
walker (float[batch,2] observation) => (float[batch,1] value, float[batch,WIDTH] logits)
{
  logits = MatMul(observation, weights)
  value = ReduceMean<axes = [1]>(observation)
}"""


def policy(folder: Path, env: str = "", width: int = 2, weights: Any = None) -> Path:
    """Write a policy that goes back towards 0: its second output says the action."""
    model = parser.parse_model(GRAPH.replace("WIDTH", str(width)))
    array = np.zeros((2, width), np.float32)
    array[0] = np.linspace(1, -1, width)
    array = array if weights is None else np.array(weights, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "weights"))
    if env:
        helper.set_model_props(model, {"policy": json.dumps({"env": env})})
    save(model, folder / "policy.onnx")
    return folder / "policy.onnx"


def pole_policy(folder: Path, weights: Any) -> Path:
    """Write a policy for CartPole."""
    model = parser.parse_model(GRAPH.replace("WIDTH", "2").replace("batch,2]", "batch,4]", 1))
    model.graph.initializer.append(numpy_helper.from_array(np.array(weights, np.float32), "weights"))
    save(model, folder / "policy.onnx")
    return folder / "policy.onnx"


def run(script: str, ckpt: Path, *argv: object, json_to: Path | None = None) -> tuple[int, dict[str, Any]]:
    result = json_to or ckpt.parent / "result.json"
    where: dict[str, Any] = {"ckpt": ckpt, "batch_size": 4, "target": "onnx", "episodes": 10}
    where["argv"] = [*map(str, argv), "--json", str(result)]
    if script == "valid":
        code = valid.main(None, PolicyRollout, **where)
    else:
        code = answers.main(None, PolicyRollout, script, **where)
    return code, json.loads(result.read_text())


def by_hand(seed: int) -> float:
    """Play the walk without the zoo: the policy goes left where the place is above 0."""
    walk = odd_environments.Walk()
    seen, _ = walk.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        seen, reward, over, _, _ = walk.step(0 if seen[0] > 0 else 1)
        total += reward
    return total


def test_returns_differ_by_seed(tmp_path: Path) -> None:
    _, found = run("multi", policy(tmp_path, "Plain-v0"), "--seed", 20)
    returns = {row["name"]: row["answer"]["return"] for row in found["answers"]}
    assert list(returns) == [f"seed {seed}" for seed in range(20, 30)]
    for seed in range(20, 30):
        assert returns[f"seed {seed}"] == pytest.approx(by_hand(seed), abs=1e-6)
    assert found["figures"]["steps"] == 50
    assert found["figures"]["environment_steps_per_s"] > 0
    assert found["figures"]["policy_steps_per_s"] > 0


def test_return_is_independent_of_parallel_episodes(tmp_path: Path) -> None:
    ckpt = policy(tmp_path, "Plain-v0")
    found = [
        {row["name"]: row["answer"]["return"] for row in run("multi", ckpt, *words)[1]["answers"]}
        for words in (["--batch_size", 10], ["--batch_size", 3], ["--target", "sdaa", "--batch_size", 8])
    ]
    assert found[0] == found[1] == found[2]
    alone = run("single", ckpt, "--seed", 1007, "--episodes", 1)[1]["answers"]
    assert alone == [row for row in run("multi", ckpt)[1]["answers"] if row["name"] == "seed 1007"]


SAID = {
    "Raise-v0": "the environment Raise-v0 failed at step 3: it raises RuntimeError: the wheel broke",
    "Reset-v0": "the environment Reset-v0 failed at reset: it raises OSError: no such track",
    "Shape-v0": "the environment Shape-v0 failed at step 3: it shows an observation of shape [3], and its space says",
    "Nan-v0": "the environment Nan-v0 failed at step 3: it shows an observation with NaN",
    "Reward-v0": "the environment Reward-v0 failed at step 3: it returns a reward of nan",
    "Exit-v0": "the environment Exit-v0 failed at step 3: it raises SystemExit: bye",
    "Endless-v0": "the episode did not end within 50 steps; check the environment, or raise --max_steps",
}


@pytest.mark.parametrize("env", sorted(SAID))
def test_failed_episode_is_skipped(env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run("valid", policy(tmp_path), "--env", env, "--max_steps", 50, "--seed", 0)
    assert (code, found["samples"]) == (1, 7)
    assert [failure["name"] for failure in found["failures"]] == ["seed 0", "seed 4", "seed 8"]
    lines = capsys.readouterr().err.splitlines()
    for seed, line in zip((0, 4, 8), lines, strict=False):
        assert line.startswith(f"seed {seed}: {SAID[env]}")
    assert lines[3] == "3 samples could not be run"
    good = [seed for seed in range(10) if seed % 4]
    assert found["metric"] == pytest.approx(np.mean([by_hand(seed) for seed in good]), abs=1e-6)
    if env == "Raise-v0":
        code, shown = run("multi", policy(tmp_path), "--env", env, "--seed", 0)
        assert (code, len(shown["answers"]), len(shown["failures"])) == (1, 7, 3)


def test_metric_is_missing_without_finished_episodes(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"seed 1000: .* 20 steps"):
        run("valid", policy(tmp_path), "--env", "Never-v0", "--max_steps", 20)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], r"policy\.onnx: .*pass --env"),
        (["--env", "CartPool-v1"], r"--env CartPool-v1: gymnasium knows no such environment \(.*CartPole"),
        (["--env", "no_such:Plain-v0"], r"--env no_such:Plain-v0: the environment cannot be made \(ModuleNotFoundErr"),
        (["--env", "Made-v0"], r"--env Made-v0: the environment cannot be made \(ValueError: no display\); check"),
        (["--env", "Panic-v0"], r"--env Panic-v0: the environment cannot be made \(GaveUp: no display\); check"),
        (
            ["--env", "CartPole-v1"],
            r"policy\.onnx in CartPole-v1: an observation has shape \[4\], and the policy's inp",
        ),
        (["--env", "Push-v0", "--episodes", 0], r"--episodes 0 must be at least 1"),
        (["--env", "Plain-v0", "--seed", -1], r"--seed -1 must be at least 0"),
        (["--env", "Plain-v0", "--max_steps", 0], r"--max_steps 0 must be at least 1"),
        (["--env", "Words-v0"], r"actions of kind Text"),
        (["--env", "Spaceless-v0"], r"--env Spaceless-v0: .*observation_space"),
        (["--env", "Plain-v0", "--seed", 2**63], r"--seed 9223372036854775808 with --episodes 10 passes"),
        (["--env", "FrozenLake-v1"], r"an observation has shape \[16\], and the policy's input observation takes"),
        (["--env", "Blackjack-v1"], r"observations of kind Tuple"),
    ],
)
def test_invalid_environments_are_one_line(words: list[object], said: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, ModelError), match=said) as caught:
        run("valid", policy(tmp_path), *words)
    assert "\n" not in str(caught.value)


def test_metadata_cannot_import_modules(tmp_path: Path) -> None:
    (tmp_path / "surprise.py").write_text("raise SystemExit('it ran')")
    ckpt, name = policy(tmp_path, "surprise:Plain-v0"), f"{MODULE}:Plain-v0"
    said = r"policy\.onnx: metadata 'policy': env 'surprise:Plain-v0' imports a module, .*pass --env surprise:Pl"
    with pytest.raises(ModelError, match=said):
        run("multi", ckpt)
    assert run("multi", ckpt, "--env", name, "--episodes", 1)[0] == 0


def test_a_policy_for_other_actions(tmp_path: Path) -> None:
    ckpt = policy(tmp_path, "Plain-v0", width=5)
    said = (
        r"takes one of 2 actions, and no output of the policy has 2 values .*\(value \[None, 1\], logits \[None, 5\]\)"
    )
    with pytest.raises(ModelError, match=said):
        run("valid", ckpt)


@pytest.mark.parametrize(("env", "width"), [("Push-v0", 1), ("Pairs-v0", 5), ("Bits-v0", 2)])
def test_other_kinds_of_actions(env: str, width: int, tmp_path: Path) -> None:
    code, found = run("valid", policy(tmp_path, env, width), "--save_predictions", tmp_path / "r.npz")
    assert (code, found["samples"]) == (0, 10)
    recording = read_recording(tmp_path / "r.npz")
    assert recording.environment == env
    assert recording.observations.shape == (50, 2)
    assert recording.actions.shape == {"Push-v0": (50, 1), "Pairs-v0": (50, 2), "Bits-v0": (50, 2)}[env]
    again = run("valid", tmp_path / "policy.onnx", "--data_path", tmp_path / "r.npz")[1]
    assert again["secondary"]["action_agreement"] == 1


def test_actions_are_compared_at_recorded_observations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt, file = policy(tmp_path, "Plain-v0"), tmp_path / "recorded.npz"
    run("valid", ckpt, "--save_predictions", file)
    other = tmp_path / "other"
    other.mkdir()
    turned = policy(other, "Plain-v0", weights=[[-1, 1], [0, 0]])
    found = run("valid", turned, "--data_path", file)[1]
    assert found["secondary"]["action_agreement"] == 0
    capsys.readouterr()
    run("valid", ckpt, "--data_path", file, "--seed", 1005)
    assert "the recording lacks 5 seeds" in capsys.readouterr().out
    shown = run("single", ckpt, "--data_path", file, "--episodes", 1)[1]["answers"]
    assert (shown[0]["answer"]["action_agreement"], shown[0]["answer"]["recorded"]) == (1, 5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--env", "Chance-v0"),
            "the recording is of another environment",
        ),
        (("--seed", 7), "the recording lacks 10 seeds"),
    ],
)
def test_foreign_recording_is_ignored_with_a_warning(
    words: tuple[object, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder's script has its recording as a default: other seeds and environments must be playable beside it."""
    ckpt, file = policy(tmp_path, "Plain-v0"), tmp_path / "recorded.npz"
    run("valid", ckpt, "--save_predictions", file)
    for script in ("valid", "multi"):
        capsys.readouterr()
        code, found = run(script, ckpt, "--data_path", file, *words)
        assert code == 0
        assert said in capsys.readouterr().out
    assert "action_agreement" not in json.dumps(found)


def recording(**columns: Any) -> dict[str, Any]:
    """Return the arrays of a recording of Plain-v0's first two seeds."""
    whole: dict[str, Any] = {"environment": "Plain-v0", "seeds": np.array([1000, 1001]), "steps": np.zeros(2, np.int64)}
    return whole | {"observations": np.zeros((2, 2), np.float32), "actions": np.zeros(2, np.int64)} | columns


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"actions": np.array(["0", "1"])}, "actions have dtype <U1"),
        ({"observations": np.array([["0", "1"]] * 2)}, "observations have dtype <U1"),
        ({"actions": np.array([0, 2])}, "seed 1001 of the recording: Plain-v0 has no action 2; record it again"),
        ({"actions": np.array([0.5, 1])}, "seed 1000 of the recording: Plain-v0 has no action 0.5; record it again"),
        ({"observations": np.full((2, 2), np.nan)}, "seed 1000 of the recording: it shows an observation with NaN"),
        (None, "not an .npz file"),
    ],
)
def test_invalid_recording_is_one_line(columns: dict[str, Any] | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.npz"
    if columns is None:
        with file.open("wb") as stream:
            np.save(stream, np.zeros(3))  # an array by itself
    else:
        np.savez(file, **recording(**columns))
    with pytest.raises((ConfigError, DataError), match=re.escape(said)):
        run("valid", policy(tmp_path, "Plain-v0"), "--data_path", file)


def test_an_environment_may_reuse_its_arrays(tmp_path: Path) -> None:
    """What is recorded and drawn again is what was shown and done, not what the arrays hold later."""
    run("valid", policy(tmp_path, "Reuse-v0", width=1), "--save_predictions", tmp_path / "r.npz", "--episodes", 1)
    found = read_recording(tmp_path / "r.npz")
    assert found.observations[:, 1].tolist() == [0, 1, 2, 3, 4]
    assert np.abs(found.actions).max() <= 1


def test_observations_of_another_type_are_an_error(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
walker (int64[batch,2] observation) => (float[batch,2] logits) { logits = Cast<to = 1>(observation) }"""
    )
    save(model, tmp_path / "policy.onnx")
    with pytest.raises(ModelError, match=r"float32, .*observation takes int64"):
        run("valid", tmp_path / "policy.onnx", "--env", "Plain-v0")


def test_missing_output(tmp_path: Path) -> None:
    ckpt = policy(tmp_path)
    model = load(ckpt)
    helper.set_model_props(model, {"policy": json.dumps({"env": "Plain-v0", "output": "q"})})
    save(model, ckpt)
    with pytest.raises(ModelError, match=r"output 'q' .*\(value"):
        run("valid", ckpt)


def test_fewer_than_100_episodes_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt, said = policy(tmp_path, "Plain-v0"), "a mean of 10 episodes is unreliable"
    run("valid", ckpt)
    assert said in capsys.readouterr().out
    run("valid", ckpt, "--episodes", 100, "--batch_size", 50)
    assert "is unreliable" not in capsys.readouterr().out
    run("multi", ckpt)
    assert "is unreliable" not in capsys.readouterr().out


def test_limit_below_the_environments_limit_is_reported(tmp_path: Path) -> None:
    ckpt = pole_policy(tmp_path, [[0, 0], [0, 0], [-1, 1], [-1, 1]])
    with pytest.raises(Exception, match=r"5 steps; .*limit is 500"):
        run("valid", ckpt, "--env", "CartPole-v1", "--max_steps", 5)


@pytest.mark.parametrize("form", ["strip", "gif"])
def test_a_drawn_episode(form: str, tmp_path: Path) -> None:
    ckpt = pole_policy(tmp_path, np.zeros((4, 2)))
    words = ("--env", "CartPole-v1", "--episodes", 1, "--save", tmp_path / "out", "--film", form)
    code, found = run("single", ckpt, *words)
    assert code == 0
    (file,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"CartPole-v1_seed_1000\.(png|gif)", file.name)
    with Image.open(file) as image:
        frames = getattr(image, "n_frames", 1)
        most = found["answers"][0]["answer"]["steps"] + 1  # images that are alike are one
        assert frames == 1 if form == "strip" else 2 < frames <= most
        assert np.asarray(image.convert("RGB")).std() > 5  # something is drawn


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Plain-v0", "rgb_array"),
        ("Chance-v0", "not deterministic: seed 1000"),
        ("Smear-v0", r"cannot be drawn \(GaveUp: no canvas\); leave out --save"),
    ],
)
def test_environments_that_cannot_be_rendered(env: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--save: {env} .*{said}"):
        run("single", policy(tmp_path, env), "--episodes", 1, "--save", tmp_path / "out")


def test_a_model_of_a_fixed_batch_and_int8_of_one_episode(tmp_path: Path) -> None:
    """What is calibrated comes in other batches than the run's, and a fixed batch is less than a run may ask for."""
    ckpt = policy(tmp_path, "Plain-v0")
    code, found = run("multi", ckpt, "--target", "cpu", "--dtype", "int8", "--batch_size", 1, "--episodes", 9)
    assert (code, len(found["answers"])) == (0, 9)


def test_without_a_metric_or_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = policy(tmp_path, "Plain-v0")
    assert run("multi", ckpt, "--skip_postprocess")[0] == 0
    assert "seed 1000  [2] from " in capsys.readouterr().out
    code, found = run("valid", ckpt, "--target", "null")
    assert (code, found["samples"]) == (0, 10)


def test_raw_outputs_are_returns_and_the_first_outputs_of_the_policy(tmp_path: Path) -> None:
    found = [
        run("multi", policy(tmp_path, "Plain-v0", weights=[[scale, -scale]] * 2), "--skip_postprocess")[1]["answers"]
        for scale in (1.0, 1.02)
    ]
    for one, other in zip(*found, strict=True):
        (totals, first), (same, scaled) = one["answer"]["outputs"], other["answer"]["outputs"]
        assert totals == same
        assert (totals["shape"], first["shape"]) == ([2], [2])
        assert any(first["values"])
        np.testing.assert_allclose(scaled["values"], np.array(first["values"]) * 1.02, rtol=1e-5)


def test_without_gymnasium_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ckpt = policy(tmp_path, "Plain-v0")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError, match=r"package gymnasium.*\[gym\]"):
        run("valid", ckpt)
