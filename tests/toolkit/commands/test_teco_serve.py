"""Arguments of ``teco serve``, and how it ends with wrong ones."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support import DIGITS, RunPython

from engine import ConfigError, TecoInferError
from serve.settings import Limits, ServeSettings
from serve.source import ModelSource
from toolkit.commands.serve import _parser, settings_of
from toolkit.served_models import source_of

MODEL = str(DIGITS / "digits_dyn.onnx")


def settings(*words: object) -> ServeSettings:
    return settings_of(_parser().parse_args(["digits", *map(str, words)]))


def test_defaults_are_local_and_without_a_token() -> None:
    found = settings()
    assert (found.host, found.is_local, found.token, found.grpc_port) == ("127.0.0.1", True, "", None)
    assert found.limits == Limits()


def test_units_of_the_flags(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    found = settings("--queue_delay", 2.5, "--max_body", 0.5, "--token_file", tmp_path / "token", "--host", "0.0.0.0")  # noqa: S104
    assert (found.batching.delay, found.limits.body, found.token, found.is_local) == (0.0025, 1 << 19, "abc", False)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--max_batch", 0], "--max_batch"),
        (["--max_queue", 0], "--max_queue"),
        (["--workers", 0], "--workers"),
        (["--timeout", 0], "--timeout"),
        (["--timeout", "nan"], "--timeout"),
        (["--call_timeout", -1], "--call_timeout"),
        (["--queue_delay", -1], "--queue_delay"),
        (["--queue_delay", "nan"], "--queue_delay"),
        (["--max_body", 0], "--max_body"),
        (["--max_tensor", "nan"], "--max_tensor"),
        (["--max_pixels", -5], "--max_pixels"),
        (["--body_timeout", 0], "--body_timeout"),
        (["--http_port", 70000], "--http_port"),
        (["--grpc_port", -1], "--grpc_port"),
        (["--grace", "nan"], "--grace"),
        (["--tls_cert", MODEL], "--tls_key"),
        (["--tls_key", MODEL], "--tls_cert"),
        (["--tls_cert", "none.pem", "--tls_key", MODEL], "none.pem"),
        (["--token_file", "none"], "none"),
        (["--http_port", "x"], "--http_port"),
        (["--no_such_flag"], "--no_such_flag"),
    ],
)
def test_wrong_values(words: list[object], part: str) -> None:
    with pytest.raises(TecoInferError) as caught:
        settings(*words)
    assert part in str(caught.value)


@pytest.mark.parametrize("content", ["", " \n", "two words", "é", "a\x07b"])
def test_wrong_tokens(content: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError):
        settings("--token_file", tmp_path / "token")


def test_sources() -> None:
    of_zoo = source_of("digits", "onnx", rows=4)
    assert (of_zoo.name, of_zoo.ckpt, of_zoo.rows) == ("digits", "", 4)
    assert of_zoo.script.endswith("digits/example_single_batch.py")
    of_file = source_of(f"mine={MODEL}", "sdaa", {"dtype": "float16"})
    assert (of_file.name, of_file.ckpt, of_file.target, of_file.flags["dtype"]) == ("mine", MODEL, "sdaa", "float16")
    assert source_of(MODEL, "onnx").name == "digits_dyn"
    assert ModelSource.from_json(of_file.to_json()) == of_file


@pytest.mark.parametrize(
    "word", ["none", "none.onnx", f"a/b={MODEL}", f"={MODEL}", f"../x={MODEL}", f"{'a' * 101}={MODEL}"]
)
def test_wrong_sources(word: str) -> None:
    if word.startswith("="):
        assert source_of(word, "onnx").name == "digits_dyn"
        return
    with pytest.raises(ConfigError):
        source_of(word, "onnx")


@pytest.mark.slow
def test_exit_codes(run_python: RunPython, tmp_path: Path) -> None:
    for package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
        pytest.importorskip(package)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        cases = (
            (["none"], "none"),
            ([str(broken)], "broken.onnx"),
            (["digits", f"digits={MODEL}"], "digits"),
            (["digits", "--target", "none"], "none"),
            (["digits", "--http_port", port], port),
            (["digits", "--http_port", "0", "--grpc_port", port], port),
            (["digits", "--http_port", "0", "--access_log", "/none/log"], "/none/log"),
        )
        for words, part in cases:
            ports = [] if "--http_port" in words else ["--http_port", "0"]
            done = run_python("-m", "toolkit.cli", "serve", *words, *ports)
            lines = done.stderr.splitlines()
            assert (done.returncode, len(lines), done.stdout) == (2, 1, ""), (words, done.stderr)
            assert lines[0].startswith("error: ")
            assert part in lines[0]


def test_the_extra_is_named_if_it_is_missing(run_python: RunPython) -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None; sys.argv = ['teco', 'serve', 'digits']; "
        "from toolkit.cli import main; main()"
    )
    done = run_python("-c", code)
    assert done.returncode == 2
    assert "serve" in done.stderr
    assert len(done.stderr.splitlines()) == 1
