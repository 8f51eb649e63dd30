"""Compile ``open_inference.proto``: ``python -m serve.protocol.compile`` (needs the package grpcio-tools)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from engine import ConfigError
from serve.protocol.messages import COMPILED

PROTO = COMPILED.with_suffix(".proto")


def compile_proto(out: Path = COMPILED) -> Path:
    """Write the descriptors of the messages. Raises ConfigError if the compiler is missing or finds an error."""
    try:
        protoc = importlib.import_module("grpc_tools.protoc")
    except ImportError as error:
        raise ConfigError(
            "compiling needs the package grpcio-tools, for this only; run: pip install grpcio-tools"
        ) from error
    code = protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={out}", PROTO.name])
    if code:
        raise ConfigError(f"{PROTO}: protoc ended with exit code {code}; correct the file")
    return out


if __name__ == "__main__":
    sys.stdout.write(f"written: {compile_proto()}\n")
