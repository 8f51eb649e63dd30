from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import RunPython, SaveOnnx, require_bfloat16

from engine import ConfigError, Engine, EngineError, EngineSpec, InputError, ModelError
from engine.backends.ort import OnnxRuntimeEngine
from engine.backends.ov import OpenVinoEngine

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)

DYNAMIC = "g (float[N,4] x) => (float[N,2] y) <float[4,2] w={1,2,3,4,5,6,7,8}> { y = MatMul(x, w) }"
STATIC = DYNAMIC.replace("[N,", "[16,")
WEIGHT = np.arange(1, 9, dtype=np.float32).reshape(4, 2)


def opened(path: Path, **options: object) -> Engine:
    return OpenVinoEngine(EngineSpec(ckpt=path, **options))  # type: ignore[arg-type]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@needs_openvino
def test_the_digits_model_matches_onnx_runtime(digits: Path) -> None:
    spec = EngineSpec(ckpt=digits / "digits_dyn.onnx", batch_size=20)
    x = random(20, 3, 32, 32)
    with OpenVinoEngine(spec) as ours, OnnxRuntimeEngine(spec) as baseline:
        y, want = ours(x), baseline(x)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
        assert (y.dtype, y.flags.writeable) == (np.float32, True)
        assert ours.metadata == baseline.metadata
        assert ours.metadata["class_labels"]
        assert [(t.name, t.shape, t.dtype) for t in ours.inputs] == [
            (t.name, t.shape, t.dtype) for t in baseline.inputs
        ]
        assert ours.describe().startswith("OpenVINO 20")
        assert ours.describe().endswith("CPU, float32")


@needs_openvino
def test_float32_is_not_silently_bfloat16(digits: Path) -> None:
    """OpenVINO's own default on a processor with bfloat16 is to compute in it."""
    path, x = digits / "digits_dyn.onnx", random(20, 3, 32, 32)
    with OnnxRuntimeEngine(EngineSpec(ckpt=path)) as baseline, opened(path) as exact:
        want = baseline(x)
        assert np.abs(exact(x) - want).max() < 1e-5 * np.abs(want).max()


@needs_openvino
def test_bfloat16_is_computed_in_bfloat16(digits: Path) -> None:
    require_bfloat16()
    path, x = digits / "digits_dyn.onnx", random(20, 3, 32, 32)
    with OnnxRuntimeEngine(EngineSpec(ckpt=path)) as baseline, opened(path, dtype="bfloat16") as half:
        want = baseline(x)
        error = np.abs(half(x) - want).max() / np.abs(want).max()
        assert 1e-5 < error < 2**-5  # bfloat16 has 8 bits, and an error of half a bit per layer
        assert half(x).dtype == np.float32
        assert half.describe().endswith("bfloat16")


@needs_openvino
@pytest.mark.parametrize("text", [DYNAMIC, STATIC], ids=["dynamic", "static"])
@pytest.mark.parametrize("streams", [1, 2])
def test_any_batch(text: str, streams: int, save_onnx: SaveOnnx) -> None:
    with opened(save_onnx(text), streams=streams) as engine:
        for batch in (1, 7, 16, 70):
            x = random(batch, 4)
            np.testing.assert_allclose(engine(x), x @ WEIGHT, rtol=1e-5, atol=1e-5)
        assert engine.static_batch == (16 if text == STATIC else None)


@needs_openvino
def test_several_inputs_and_outputs_of_several_kinds(save_onnx: SaveOnnx) -> None:
    path = save_onnx(
        """g (float[N,4] x, int64[N] ids, bool[N,1] mask, float[3,4] table, float s)
        => (float[N,4] masked, int64[N] next, bool[N,1] not_mask, float[N,4] rows, float[N,4] scaled)
        <int64 one={1}> {
            zero = Sub(x, x)
            masked = Where(mask, x, zero)
            next = Add(ids, one)
            not_mask = Not(mask)
            rows = Gather(table, ids)
            scaled = Mul(x, s)
        }"""
    )
    with opened(path, input_name=("s", "x", "mask", "table", "ids")) as engine:
        for batch in (1, 16, 37):
            x, table = random(batch, 4), random(3, 4)
            ids, mask = np.arange(batch) % 3, (np.arange(batch) % 2 == 0)[:, None]
            got = engine([np.array(2, np.float32), x, mask, table, ids])
            for y, want in zip(got, (np.where(mask, x, 0), ids + 1, ~mask, table[ids], 2 * x), strict=True):
                assert y.dtype == want.dtype
                np.testing.assert_array_equal(y, want)


@needs_openvino
def test_outputs_are_owned_by_the_caller(save_onnx: SaveOnnx) -> None:
    with opened(save_onnx(DYNAMIC)) as engine:
        x = random(8, 4)
        first = engine(x)
        kept = first.copy()
        engine(x + 1)
        x[:] = 0
        np.testing.assert_array_equal(first, kept)


@needs_openvino
def test_layouts_of_the_callers_array_do_not_matter(save_onnx: SaveOnnx) -> None:
    with opened(save_onnx(DYNAMIC)) as engine:
        x = random(8, 4)
        want = engine(x)
        frozen = x.copy()
        frozen.setflags(write=False)
        for same in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x.astype(">f4"), frozen):
            np.testing.assert_array_equal(engine(same), want)
        np.testing.assert_array_equal(engine(x[::-1])[::-1], want)


@needs_openvino
def test_streams_are_bit_identical_to_single_calls(digits: Path) -> None:
    path = digits / "digits_dyn.onnx"
    xs = [random(batch, 3, 32, 32) * batch for batch in (16, 16, 3, 16, 1, 16, 9, 16)]
    with opened(path) as one:
        want = [one(x) for x in xs]
    with opened(path, streams=2) as two:
        for x, y in zip(xs, [call.result() for call in [two.run_async(x) for x in xs]], strict=True):
            np.testing.assert_array_equal(y, want.pop(0), err_msg=str(len(x)))
        # nor do plain calls of more threads than there are streams disturb one another
        with ThreadPoolExecutor(5) as pool:
            assert len({y.tobytes() for y in pool.map(two, [xs[0]] * 10)}) == 1


@needs_openvino
def test_more_streams_than_cores_are_as_many_as_cores(save_onnx: SaveOnnx) -> None:
    with opened(save_onnx(DYNAMIC), streams=1000) as engine:
        assert 1 <= engine.streams < 1000
        assert engine(random(3, 4)).shape == (3, 2)


@needs_openvino
def test_errors_are_one_line_and_name_the_file(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    unknown = """<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
    g (float[N,4] x) => (float[N,4] y) { y = custom.Thing(x) }"""
    with pytest.raises(ModelError, match=r"model\.onnx: OpenVINO 20\S+ .*Thing") as caught:
        opened(save_onnx(unknown))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    with pytest.raises(ModelError, match="does not exist"):
        opened(tmp_path / "no.onnx")
    with pytest.raises(ConfigError, match=r"int8; .*: float32, bfloat16"):
        opened(save_onnx(DYNAMIC), dtype="int8")
    with pytest.raises(ConfigError, match="does not fit input 'x'"):
        opened(save_onnx(STATIC), input_size=((16, 5),))
    with opened(save_onnx(STATIC)) as engine, pytest.raises(InputError, match="2x5, the model takes 16x4"):
        engine(random(2, 5))


@needs_openvino
def test_an_error_while_computing_is_one_line(save_onnx: SaveOnnx) -> None:
    with opened(save_onnx("g (float[N,A] x, float[N,B] y) => (float[N,C] z) { z = Add(x, y) }")) as engine:
        with pytest.raises(EngineError, match="OpenVINO failed while computing: ") as caught:
            engine([random(2, 3), random(2, 4)])
        assert "\n" not in str(caught.value)
        np.testing.assert_array_equal(engine([random(2, 3), random(2, 3)]), 2 * random(2, 3))  # and it goes on


@needs_openvino
def test_a_call_can_be_cancelled(digits: Path) -> None:
    model = onnx.load(digits / "digits.onnx")
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    with opened(digits / "digits.onnx") as engine:
        started = threading.Event()
        call = engine.queue.submit(lambda: (started.set(), engine(np.zeros((batch * 4000, 3, 32, 32), np.float32))))
        started.wait()
        deadline = time.perf_counter() + 30
        while not call.done() and time.perf_counter() < deadline:
            engine.cancel()  # until it meets a shard that is being computed
            time.sleep(0.001)
        with pytest.raises(EngineError, match="cancel"):
            call.result()
    engine.cancel()  # too late, but no error


@needs_openvino
def test_release_frees_the_model(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx(DYNAMIC))
    engine.release()
    assert not hasattr(engine, "_compiled")
    with pytest.raises(EngineError, match="used after release"):
        engine(random(1, 4))
    assert "OpenVINO" in engine.describe()


@needs_openvino
def test_the_import_has_no_output_and_no_telemetry(run_python: RunPython, save_onnx: SaveOnnx) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nimport numpy as np\nfrom engine import EngineSpec\n"
        "from engine.backends.ov import OpenVinoEngine\n"
        "with OpenVinoEngine(EngineSpec(Path(sys.argv[1]))) as engine:\n    engine(np.ones((2, 4), np.float32))\n"
        "assert not any(name.startswith('openvino_telemetry') for name in sys.modules)"
    )
    done = run_python("-W", "error", "-c", code, save_onnx(DYNAMIC))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_missing_package_is_named(run_python: RunPython, save_onnx: SaveOnnx) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom engine import EngineSpec, TargetError\n"
        "sys.modules['openvino'] = None\nfrom engine.backends.ov import OpenVinoEngine\n"
        "try:\n    OpenVinoEngine(EngineSpec(Path(sys.argv[1])))\nexcept TargetError as error:\n    print(error)"
    )
    done = run_python("-c", code, save_onnx(DYNAMIC))
    assert done.stdout.startswith("OpenVINO cannot be imported (")
    assert done.stdout.endswith('); run: pip install -c constraints.txt -e ".[openvino]"\n')


@needs_openvino
def test_ctrl_c_after_a_model_was_freed_by_another_thread(digits: Path, run_python: RunPython) -> None:
    """OpenVINO frees the memory that signals of the thread which began it run on when its last part goes."""
    script = (
        "import os, pathlib, signal, sys, threading, time\n"
        "from engine import EngineSpec\n"
        "from engine.backends.ov import OpenVinoEngine\n"
        "engines = [OpenVinoEngine(EngineSpec(pathlib.Path(sys.argv[1])))]\n"
        "thread = threading.Thread(target=lambda: engines.pop().release())\n"
        "thread.start()\n"
        "thread.join()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(10)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = run_python("-c", script, digits / "digits_dyn.onnx")
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


FIRST_CALLS = """
import os, sys, threading
import numpy as np
from engine import EngineSpec
from engine.backends.ov import OpenVinoEngine

engine = OpenVinoEngine(EngineSpec(ckpt=sys.argv[1], streams=2))
begin = threading.Barrier(2)

def call():
    begin.wait()
    engine(np.zeros((2, 3, 32, 32), np.float32))

workers = [threading.Thread(target=call) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


@needs_openvino
@pytest.mark.slow
def test_the_first_calls_of_two_workers_do_not_wait_for_each_other(digits: Path) -> None:
    """OpenVINO fills its table of NumPy types on first use; two concurrent first calls used to deadlock."""
    for _ in range(2):  # without what the engine does about it two of three did
        command = [sys.executable, "-c", FIRST_CALLS, str(digits / "digits_dyn.onnx")]
        subprocess.run(command, check=True, timeout=60)
