"""Take one request as a server does, up to the engine: run_serving.py KIND FILE [HEADER].

KIND is ``rest``, ``grpc``, ``completion`` or ``form``. A request that is refused ends with exit code 2 and one line;
every other one has arrays that the engine takes, which are computed and written as the answer.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from engine import EngineSpec, TecoInferError, open_engine
from serve.http.bodies import parse_object
from serve.http.completions import checked_fields
from serve.http.forms import files_of_form
from serve.http.infer_body import encode_infer, parse_infer
from serve.protocol.infer_messages import decoded_infer, parsed_request, response_of
from serve.protocol.request import Signature
from serve.settings import Limits
from tests.fuzz.case import ROOT

LIMITS = Limits(body=1 << 22, tensor=1 << 22)


def main(kind: str, file: str, header: str | None = None) -> int:
    """Take the request; return 0, or 2 if it is refused."""
    body = Path(file).read_bytes()
    try:
        if kind == "completion":
            checked_fields(parse_object(body))
            return 0
        if kind == "form":
            asyncio.run(files_of_form(header or "", body, LIMITS))
            return 0
        request: Any = parse_infer("digits", body, header, LIMITS) if kind == "rest" else _of_message(body)
        with open_engine("null", EngineSpec(ROOT / "example/classification/digits/digits_dyn.onnx")) as engine:
            signature = Signature(tuple(engine.inputs), tuple(engine.outputs))
            found = engine(signature.arrange(request).arrays)
            outputs = found if isinstance(found, list) else [found]
            if kind == "rest":
                encode_infer(request, signature.outputs, outputs, None, "1")
            else:
                response_of(request, signature.outputs, outputs, None, "1").SerializeToString()
    except TecoInferError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _of_message(body: bytes) -> Any:
    return parsed_request(decoded_infer(body), LIMITS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
