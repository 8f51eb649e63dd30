"""Empty servers of the libraries that `teco serve` could use: requests per second, with the digits' payload.

Each answers at once without reading the request, so the rate is the most that a server built on it can reach. The
client is bound to the last core, the servers to the others.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import arguments, finish, median
from serving import asked, echo

KINDS = {
    "grpc.aio": ("grpc", ("grpc.aio",)),
    "grpc, 16 threads": ("grpc", ("grpc.threads",)),
    "uvicorn h11, FastAPI": ("http", ("fastapi", "h11")),
    "uvicorn h11, Starlette": ("http", ("starlette", "h11")),
    "uvicorn h11, plain ASGI": ("http", ("asgi", "h11")),
    "uvicorn httptools, FastAPI": ("http", ("fastapi", "httptools")),
}


def main() -> int:
    """Measure all in turn, print the medians, and write the JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--in_flight", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rounds, seconds = (1, 0.3) if args.quick else (args.rounds, args.seconds)
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, (protocol, words) in KINDS.items():
            if "httptools" in words and importlib.util.find_spec("httptools") is None:
                continue
            with echo(*words) as (port, pid):
                asked(protocol, port, args.in_flight, seconds / 5)  # imports on the first request
                found.setdefault(name, []).append(asked(protocol, port, args.in_flight, seconds, pid=pid))
    result = {name: {key: median([one[key] for one in some]) for key in some[0]} for name, some in found.items()}
    print(f"{args.in_flight} in flight, medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name, one in result.items():
        print(f"{name:28} {one['rate']:8.0f} requests/s  processor time {one['cpu'] * 1e6:6.0f} us each")
    finish("serving_choices", {"in_flight": args.in_flight, "figures": result}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
