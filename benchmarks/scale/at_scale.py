"""Large runs in one table each: Ray workers of one core, a list of a million files, records of thousands of parts.

``--only ray list parts`` selects. The Ray workers are compared with the prediction of ``scaling.py``, each of the other
two with a peer and a limit, and all results with those of one process.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import arguments, finish

from scale import long_list, many_parts

PARTS = ("ray", "list", "parts")


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help="ray, list or parts")
    parser.add_argument("--images", type=int, default=1440, help="images of the Ray runs")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="workers of the Ray runs")
    parser.add_argument("--batch_seconds", type=float, default=0.25, help="a batch of 8 on the paced card")
    parser.add_argument("--targets", nargs="+", choices=("sdaa", "onnx"), default=["sdaa", "onnx"], help="of Ray runs")
    parser.add_argument("--files", type=int, default=1_200_000, help="files in the list")
    parser.add_argument("--processes", type=int, default=8, help="processes that share the list")
    parser.add_argument("--steps", type=int, default=0, help="batches of 64 per process; 0: all")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 100, 1000, 10_000], help="numbers of parts")
    parser.add_argument("--samples", type=int, default=400_000, help="samples of all parts together")
    args = parser.parse_args()
    if args.quick:
        args.images, args.workers, args.targets = min(args.images, 64), [1, 2], ["sdaa"]
        args.files, args.processes, args.steps = min(args.files, 2000), 2, 2
        args.sizes, args.samples = [1, 200], min(args.samples, 2000)
    found: dict[str, Any] = {}
    if "ray" in args.only:
        if importlib.util.find_spec("ray") is None:
            print('Ray is not installed (".[ray]"); its table is left out')
        else:
            from scale import workers

            found["ray"] = workers.measured(args.images, args.workers, args.targets, args.batch_seconds, args.quick)
            workers.show(found["ray"])
    if "list" in args.only:
        found["list"] = long_list.measured(args.files, args.processes, args.steps, 64)
        long_list.show(found["list"])
    if "parts" in args.only:
        found["parts"] = many_parts.measured(args.samples, args.sizes)
        many_parts.show(found["parts"])
    finish("at_scale", found, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
