"""The HTTP application: routes, and errors as answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from engine import TecoInferError
from serve.errors import ServeError, invalid
from serve.http.answers import answered
from serve.http.bodies import LARGE, parse_object, read_body
from serve.http.completions import Completion, openai_error
from serve.http.forms import sent_files
from serve.http.gate import Gate
from serve.http.infer_body import HEADER, encode_infer, parse_infer
from serve.http.openapi import ANSWER, INFER, described
from serve.metadata import model_metadata, server_metadata
from serve.repository import VERSION, Repository, Timing
from tecoinfer_modelzoo.distribution import version

STATIC = Path(__file__).with_name("static")
FILES = {"style.css": "text/css", "page.js": "text/javascript", "index.js": "text/javascript"}
"""Files that pages load, and their media types."""


def application(repository: Repository) -> Any:
    """Return the ASGI application of a repository."""
    app = FastAPI(title="teco serve", version=version() or "", docs_url=None, redoc_url=None, openapi_url=None)
    _health(app, repository)
    _metadata(app, repository)
    _inference(app, repository)
    _answers(app, repository)
    _completions(app, repository)
    _repository(app, repository)
    _pages(app, repository)
    _errors(app)
    return Gate(app, repository)


def _health(app: FastAPI, repository: Repository) -> None:
    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        """Return whether the server runs."""
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready() -> JSONResponse:
        """Return whether all models answer requests; status 503 if not."""
        return JSONResponse({"ready": repository.is_ready}, 200 if repository.is_ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return the metrics in Prometheus' text form."""
        return Response(
            repository.metrics.text(model.figures for model in repository.models.values()),
            media_type="text/plain; version=0.0.4",
        )


def _metadata(app: FastAPI, repository: Repository) -> None:
    @app.get("/v2")
    async def server() -> dict[str, Any]:
        """Return name, version and extensions of the server."""
        return server_metadata()

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    async def metadata(name: str, version: str = "") -> dict[str, Any]:
        """Return the tensors of a model; its task, labels and batching are under ``parameters``."""
        return model_metadata(repository.find_network(name, version))

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str = "") -> JSONResponse:
        """Return whether a model answers requests; status 503 if not."""
        model = repository.find_network(name, version).model
        ready = model.is_ready and not repository.closing
        return JSONResponse({"name": name, "ready": ready}, 200 if ready else 503)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return described(app, repository)


def _note(request: Request, model: str, kind: str, timing: Timing | None = None) -> None:
    """Add the model, and where the time went, to the access log's entry."""
    entry = request.scope["state"]["entry"]
    entry |= {"model": model, "kind": kind}
    if timing is not None:
        times = {"queue_s": round(timing.queue_s, 6), "compute_s": round(timing.compute_s, 6), "batch": timing.batch}
        entry |= times


def _inference(app: FastAPI, repository: Repository) -> None:
    limits = repository.settings.limits

    @app.post("/v2/models/{name}/infer", openapi_extra=INFER)
    @app.post("/v2/models/{name}/versions/{version}/infer", openapi_extra=INFER)
    async def infer(request: Request, name: str, version: str = "") -> Response:
        """Compute tensors, in JSON or by the binary extension of the protocol."""
        network = repository.find_network(name, version)
        _note(request, network.name, "infer")
        body = await read_body(request, limits)
        parsed = await _maybe_in_thread(len(body), parse_infer, name, body, request.headers.get(HEADER), limits)
        outputs, timing = await network.infer(parsed)
        _note(request, network.name, "infer", timing)
        size = sum(output.nbytes for output in outputs)
        signature = network.tensors(parsed)
        given = (parsed, signature.outputs, outputs, signature.labels, VERSION)
        encoded = await _maybe_in_thread(size, encode_infer, *given)
        if encoded.json_bytes is None:
            return Response(encoded.body, media_type="application/json")
        headers = {HEADER: str(encoded.json_bytes)}
        return Response(encoded.body, media_type="application/octet-stream", headers=headers)


async def _maybe_in_thread(size: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, in a thread if it handles so many bytes that others would wait for it."""
    return await asyncio.to_thread(function, *args) if size >= LARGE else function(*args)


def _answers(app: FastAPI, repository: Repository) -> None:
    @app.post("/v2/models/{name}/answer", openapi_extra=ANSWER)
    @app.post("/v2/models/{name}/versions/{version}/answer", include_in_schema=False)
    async def answer(request: Request, name: str, version: str = "", rendering: bool = False) -> JSONResponse:
        """Answer the samples of a body, or of a form's files, as ``example_single_batch.py`` does for a file."""
        start = time.perf_counter()
        model = repository.find(name, version)
        _note(request, name, "answer")
        files = await sent_files(request, repository.settings.limits)
        found, timing = await answered(model, files, rendering)
        _note(request, name, "answer", timing)
        timing_of = {"queue_s": round(timing.queue_s, 6), **found["timing"]}
        timing_of["total_s"] = round(time.perf_counter() - start, 6)
        simulated = {"simulated": True} if model.description["simulated"] else {}
        return JSONResponse({"model_name": name, **simulated, "answers": found["answers"], "timing": timing_of})


def _completions(app: FastAPI, repository: Repository) -> None:
    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        """Continue a text; with ``stream`` as server-sent events. Fields as of OpenAI's API."""
        body = await read_body(request, repository.settings.limits)
        asked = Completion(parse_object(body), repository)
        asked.model.check_ready()
        _note(request, asked.model.name, "complete")
        if not asked.streams:
            return JSONResponse(await asked.whole())
        return StreamingResponse(
            await asked.events(), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    @app.get("/v1/models")
    async def listed() -> dict[str, Any]:
        """List the models that continue texts."""
        names = [model.name for model in repository.models.values() if model.is_ready and model.description["streams"]]
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "teco-serve"} for name in names]}


def _repository(app: FastAPI, repository: Repository) -> None:
    @app.post("/v2/repository/index")
    async def index(request: Request) -> list[dict[str, str]]:
        """List the models with their states."""
        body = await read_body(request, repository.settings.limits)
        fields = parse_object(body) if body.strip() else {}
        return repository.index(fields.get("ready") is True)

    @app.post("/v2/repository/models/{name}/load")
    async def load(request: Request, name: str) -> dict[str, str]:
        """Load a model of this server, or load it again. Files and settings cannot be sent."""
        await _without_parameters(request, "config")
        await repository.find(name).load()
        return {}

    @app.post("/v2/repository/models/{name}/unload")
    async def unload(request: Request, name: str) -> dict[str, str]:
        """Unload a model; requests that were accepted are answered first."""
        await _without_parameters(request)
        await repository.find(name).unload()
        return {}

    async def _without_parameters(request: Request, *refused: str) -> None:
        """Raise ServeError if a request brings a configuration or files: the models are those of the command line."""
        body = await read_body(request, repository.settings.limits)
        parameters = parse_object(body).get("parameters") if body.strip() else None
        given = list(parameters) if isinstance(parameters, dict) else []
        wrong = next((key for key in given if key in refused or key.startswith("file:")), None)
        if wrong is not None:
            raise ServeError("unsupported", f"parameter {wrong[:40]!r}: models are given on the command line only")


def _pages(app: FastAPI, repository: Repository) -> None:
    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/models/")

    @app.get("/models/", include_in_schema=False)
    async def index() -> FileResponse:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    @app.get("/models/{name}", include_in_schema=False)
    async def page(name: str) -> FileResponse:
        repository.find(name)
        return FileResponse(STATIC / "page.html", media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> FileResponse:
        if name not in FILES:
            raise ServeError("unknown", f"no file {name[:60]!r}")
        return FileResponse(STATIC / name, media_type=FILES[name])


def _errors(app: FastAPI) -> None:
    """Answer errors in one line of JSON."""

    def answered(request: Request, error: ServeError) -> JSONResponse:
        body = openai_error(error) if request.url.path.startswith("/v1/") else {"error": str(error)}
        headers = {"retry-after": "1"} if error.kind in ("full", "unavailable") else None
        return JSONResponse(body, error.status, headers)

    @app.exception_handler(ServeError)
    async def of_ours(request: Request, error: ServeError) -> JSONResponse:
        return answered(request, error)

    @app.exception_handler(TecoInferError)
    async def of_zoo(request: Request, error: TecoInferError) -> JSONResponse:
        return answered(request, ServeError("failed", str(error)))

    @app.exception_handler(RequestValidationError)
    async def of_query(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return answered(request, invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"))

    @app.exception_handler(ClientDisconnect)
    async def of_lost_client(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client has disconnected

    @app.exception_handler(HTTPException)
    async def of_routing(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def of_others(request: Request, error: Exception) -> JSONResponse:
        return answered(request, ServeError("failed", f"unforeseen {type(error).__name__} in the server; see its log"))
