"""Serve models over the network by the Open Inference Protocol: REST, gRPC, and answers of their tasks.

A model is the name of one of the zoo, or an ONNX file (tensors only); NAME=MODEL gives it another name. The server
listens at 127.0.0.1 unless told otherwise, and ends at SIGTERM or Ctrl-C after it has answered what it accepted.
docs/how-to/serving.md has examples.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ALL_DTYPES, ConfigError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.files import utf8_text
from toolkit.arguments import Parser
from toolkit.served_models import source_of
from utils.tasks.find import add_contrib

EXPORT = """\
Write a model repository for the Triton Inference Server from models of the zoo, or ONNX files.

Each network gets a folder with config.pbtxt (inputs, outputs, batching as the model allows it), its ONNX file and its
labels. A model of several networks, such as an encoder and a decoder, becomes several models, without the task's code.
"""
"""Help text of ``teco export-repository``."""

if TYPE_CHECKING:
    from serve.repository import ServedModel
    from serve.server import Running
    from serve.settings import ServeSettings


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Serve the models until the server is told to end; return 0."""
    args = _parser().parse_args(argv)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are raised; its own lines would come before them
    with extra("teco serve", "serve"):
        from serve.server import serve
    add_contrib(root)
    settings = settings_of(args)
    flags = {} if args.dtype is None else {"dtype": args.dtype}
    sources = [source_of(word, args.target, flags, args.max_batch, root) for word in args.models]
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    if not settings.is_local and not settings.token:
        print(
            f"warning: --host {settings.host} without a token: any machine that reaches it can use it", file=sys.stderr
        )
    asyncio.run(serve(sources, settings, _print_addresses))
    return 0


def _print_addresses(server: Running) -> None:
    settings = server.repository.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.certificate is not None else "http"
    for model in server.repository.models.values():
        about = model.description
        print(f"{model.name}: {about['task'] or 'tensors'} on {about['engine']}; {_batching(model)}")
    grpc = "" if server.grpc_port is None else f", grpc {host}:{server.grpc_port}"
    print(f"serving {scheme}://{host}:{server.http_port}{grpc}", flush=True)


def _batching(model: ServedModel) -> str:
    """Return whether requests to a model, or to each of its networks, are batched."""
    found = {name: "batches" if one.joins else f"no batches: {one.reason}" for name, one in model.networks.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{model.name}.{name} {text}" for name, text in found.items())


def _parser() -> Parser:
    parser = Parser("teco serve", __doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME=]MODEL", help="models of the zoo, or ONNX files")
    add("--target", default="onnx", metavar="NAME", help="engine (default: %(default)s)")
    add("--dtype", choices=ALL_DTYPES, help="precision (default: the target's)")
    _add_address(parser.add_argument_group("address and security"))
    _add_batching(parser.add_argument_group("batching"))
    _add_limits(parser.add_argument_group("limits of a request"))
    return parser


def _add_address(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    add("--http_port", type=int, default=8000, metavar="N", help="0: a free one (default: %(default)s)")
    add("--grpc_port", type=int, metavar="N", help="serve gRPC too; 0: a free one")
    add("--token_file", type=Path, metavar="FILE", help="file with a token that clients must send")
    add("--tls_cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    add("--tls_key", type=Path, metavar="FILE", help="its key, PEM")
    add(
        "--access_log",
        type=Path,
        nargs="?",
        const=Path("-"),
        metavar="FILE",
        help="a JSON line per request; - : stdout",
    )
    add("--grace", type=float, default=30.0, metavar="S", help="seconds for accepted requests at the end (default: 30)")


def _add_batching(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--max_batch", type=int, default=32, metavar="N", help="most rows of a call (default: %(default)s)")
    add(
        "--queue_delay",
        type=float,
        default=0.0,
        metavar="MS",
        help="milliseconds to wait for a full batch (default: 0)",
    )
    add(
        "--max_queue", type=int, default=256, metavar="N", help="most waiting requests per model (default: %(default)s)"
    )
    add("--timeout", type=float, default=30.0, metavar="S", help="seconds until a request is given up (default: 30)")
    add("--call_timeout", type=float, default=300.0, metavar="S", help="seconds until a call is ended (default: 300)")
    add("--workers", type=int, default=1, metavar="N", help="engine processes per model (default: %(default)s)")
    add("--launcher", choices=("process", "ray"), default="process", help="ray: replicas on a Ray cluster")
    add("--max_workers", type=int, default=0, metavar="N", help="ray: most replicas per model, by its load")


def _add_limits(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--max_body", type=float, default=64.0, metavar="MB", help="megabytes (2**20) of a body (default: 64)")
    add("--max_tensor", type=float, default=64.0, metavar="MB", help="megabytes of a tensor (default: 64)")
    add(
        "--max_pixels",
        type=int,
        default=50_000_000,
        metavar="N",
        help="pixels of a decoded image (default: %(default)s)",
    )
    add("--body_timeout", type=float, default=30.0, metavar="S", help="seconds for a body to arrive (default: 30)")
    add("--max_samples", type=int, default=64, metavar="N", help="samples of a body to answer (default: %(default)s)")
    add("--max_sequences", type=int, default=1000, metavar="N", help="open sequences per model (default: %(default)s)")
    add(
        "--sequence_timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds without a request until a sequence is closed (default: 60)",
    )


def settings_of(args: argparse.Namespace) -> ServeSettings:
    """Return the settings of the arguments. Raises ConfigError if one is invalid."""
    from serve.settings import MEBI, BatchSettings, Limits, ServeSettings

    batching = BatchSettings(
        rows=args.max_batch,
        delay=args.queue_delay / 1e3,
        queue=args.max_queue,
        timeout=args.timeout,
        workers=args.workers,
        most_workers=args.max_workers,
        call_seconds=args.call_timeout,
    )
    body, tensor = (int(value * MEBI) if 0 < value < 1e9 else 0 for value in (args.max_body, args.max_tensor))
    for flag, file in (("tls_cert", args.tls_cert), ("tls_key", args.tls_key)):
        if file is not None and not file.is_file():
            raise ConfigError(f"--{flag} {file} does not exist; give a PEM file")
    return ServeSettings(
        host=args.host,
        http_port=args.http_port,
        grpc_port=args.grpc_port,
        token=_token(args.token_file),
        certificate=args.tls_cert,
        key=args.tls_key,
        access_log=args.access_log,
        launcher=args.launcher,
        grace=args.grace,
        batching=batching,
        limits=Limits(
            body=body,
            tensor=tensor,
            pixels=args.max_pixels,
            samples=args.max_samples,
            sequences=args.max_sequences,
            sequence_seconds=args.sequence_timeout,
            body_seconds=args.body_timeout,
        ),
    )


def _token(file: Path | None) -> str:
    """Return the token of a file; empty without one."""
    if file is None:
        return ""
    found = utf8_text(file, "--token_file").strip()
    if not found or not found.isascii() or not found.isprintable() or " " in found:
        raise ConfigError(f"--token_file {file}: write a token into it, one word of ASCII characters")
    return found


def export_repository(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write a repository for Triton; return 0."""
    parser = Parser("teco export-repository", EXPORT)
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME=]MODEL", help="models of the zoo, or ONNX files")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the repository")
    add("--max_batch", type=int, default=32, metavar="N", help="most rows of a batch (default: %(default)s)")
    args = parser.parse_args(argv)
    if args.max_batch < 1:
        raise ConfigError(f"--max_batch {args.max_batch} must be at least 1")
    from serve import triton_repository

    add_contrib(root)
    sources = [source_of(word, "onnx", rows=args.max_batch, root=root) for word in args.models]
    for folder in triton_repository.export_repository(sources, args.out, args.max_batch):
        print(f"written: {folder}")
    return 0
