"""Scripts for Grounding DINO in the historical style run unchanged, from ``example/`` and from ``contrib/example/``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from grounding_model import SIDE, write_model, write_tokenizer
from PIL import Image
from support import ROOT, RunPython

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.torch]

DATA = ROOT / "example" / "detection" / "digit_detector" / "data"
IMAGES = 24

# What such scripts do, call by call; nothing here is to be modernised.
HEAD = """
import os, sys, argparse, time
from pathlib import Path
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))
from PIL import Image
import torch
from torch.utils.data import DataLoader

from engine.tecoinfer_pytorch import TecoInferEngine
from engine.base import PASS_PATH
from utils.preprocess.pytorch.groundingdinot import preprocess
from utils.postprocess.pytorch.groundingdinot import PostProcessCocoGrounding, CocoGroundingEvaluator, get_tokenlizer

parser = argparse.ArgumentParser()
parser.add_argument("--ckpt")
parser.add_argument("--tokenlizer")
parser.add_argument("--input_name", default="input")
parser.add_argument("--data_path")
parser.add_argument("--batch_size", type=int, default=1)
parser.add_argument("--input_size", type=int, default=800)
parser.add_argument("--target", default="onnx")
parser.add_argument("--dtype", default="float32")
parser.add_argument("--pass_path", default=PASS_PATH / "default_pass.py")
opt = parser.parse_args()

def engine():
    spas = int(os.getenv("MAX_ENGINE_NUMS", 4))
    text = [opt.batch_size, 195]
    sizes = [[max(opt.batch_size // spas, 1), 3, opt.input_size, opt.input_size], text, text, text]
    return TecoInferEngine(ckpt=opt.ckpt, batch_size=opt.batch_size, input_size=sizes, input_name=opt.input_name,
                           target=opt.target, dtype=opt.dtype, pass_path=opt.pass_path,
                           rank=int(os.environ.get("OMPI_COMM_WOLRD_RANK", 0)))

def split(prec):
    return {"pred_logits": torch.from_numpy(prec[:, :, :256]).float(),
            "pred_boxes": torch.from_numpy(prec[:, :, 256:]).float()}
"""

VALID = """
from utils.datasets.groundingdinot_dataset import CocoDetection, collate_fn

if __name__ == "__main__":
    infer_engine = engine()
    dataset = CocoDetection(opt.data_path,
                            opt.data_path.replace("images/val2017", "annotations/instances_val2017.json"))
    loader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=False, num_workers=1, collate_fn=collate_fn)
    tokenlizer = get_tokenlizer(opt.tokenlizer)
    postprocessor = PostProcessCocoGrounding(coco_api=dataset.coco, tokenlizer=tokenlizer)
    evaluator = CocoGroundingEvaluator(dataset.coco, iou_types=("bbox",), useCats=True)
    caption = " . ".join([item["name"] for item in dataset.coco.dataset["categories"]]) + " ."
    for images, targets in loader:
        images = images.tensors
        images, input_ids, token_type_ids, attention_mask = preprocess(images, tokenlizer, caption,
                                                                       half=opt.dtype == "float16")
        prec = infer_engine([images, input_ids, token_type_ids, attention_mask])
        assert 0 < infer_engine.run_time < 60
        sizes = torch.stack([t["orig_size"] for t in targets], dim=0).to("cpu")
        results = postprocessor(split(prec), sizes)
        evaluator.update({target["image_id"]: output for target, output in zip(targets, results)})
    evaluator.synchronize_between_processes()
    evaluator.accumulate()
    evaluator.summarize()
    if "sdaa" in opt.target:
        infer_engine.release()
    print("Final results:", evaluator.coco_eval["bbox"].stats.tolist())
"""

SHOW = """
def show(path, infer_engine, postprocessor, tokenizer):
    category_dict = postprocessor.category_dict
    caption = " . ".join([item["name"] for item in category_dict]) + " ."
    width, height = Image.open(path).size
    shape = torch.tensor([[width, height]])
    images, input_ids, token_type_ids, attention_mask = preprocess(path, tokenizer, caption,
                                                                   half=opt.dtype == "float16")
    prec = infer_engine([images, input_ids, token_type_ids, attention_mask])
    found = postprocessor(split(prec), shape)[0]
    names = {category["id"]: category["name"] for category in category_dict}
    for i in range(found["boxes"].shape[0]):
        if found["scores"][i] >= 0.5:
            print(f"{names[int(found['labels'][i])]}:", *map(int, found["boxes"][i]), f"{found['scores'][i]:.2f}")

if __name__ == "__main__":
    infer_engine = engine()
    tokenizer = get_tokenlizer(opt.tokenlizer)
    postprocessor = PostProcessCocoGrounding(coco_api=None, tokenlizer=tokenizer)
"""

SINGLE = """
    show(opt.data_path, infer_engine, postprocessor, tokenizer)
"""

MULTI = """
    for idx, name in enumerate(sorted(os.listdir(opt.data_path))):
        print(f"{idx + 1}: {name}")
        show(os.path.join(opt.data_path, name), infer_engine, postprocessor, tokenizer)
"""

BARE = """
import os, runpy, sys
sys.path.append(sys.argv[1])
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script where packages are there but no zoo is installed: a .pth file in the folder added says nothing."""

SCRIPTS = {"valid": HEAD + VALID, "single_batch": HEAD + SHOW + SINGLE, "multi_batch": HEAD + SHOW + MULTI}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the zoo beside COCO's layout of a few images, a tokenizer and a model."""
    root = tmp_path_factory.mktemp("grounding")
    for folder in ("contrib/engine", "contrib/utils", "engine", "tecoinfer_modelzoo", "utils"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for where in ("example", "contrib/example"):
        home = root / where / "detection" / "groundingdinot"
        home.mkdir(parents=True)
        for name, text in SCRIPTS.items():
            (home / f"example_{name}.py").write_text(text)
    content = json.loads((DATA / "val.json").read_text())
    images = content["images"][:IMAGES]
    for image in images:
        image["file_name"] = Path(image["file_name"]).name
    kept = {image["id"] for image in images}
    content |= {"images": images, "annotations": [a for a in content["annotations"] if a["image_id"] in kept]}
    folder_of_images, file = root / "coco/images/val2017", root / "coco/annotations/instances_val2017.json"
    folder_of_images.mkdir(parents=True)
    file.parent.mkdir()
    file.write_text(json.dumps(content))
    for image in images:
        shutil.copy(DATA / "val" / image["file_name"], folder_of_images)
    write_model(root / "grounding.onnx", write_tokenizer(root / "bert"))
    return root


def run(run_python: RunPython, place: Path, where: str, name: str, data: Path, *flags: str) -> str:
    """Run a script from its own folder and return what it prints."""
    home = place / where / "detection" / "groundingdinot"
    done: subprocess.CompletedProcess[str] = run_python(
        *("-S", "-c", BARE, sysconfig.get_path("purelib"), home / f"example_{name}.py"),
        *("--ckpt", place / "grounding.onnx", "--tokenlizer", place / "bert"),
        *("--data_path", data, "--input_size", str(SIDE), *flags),
        cwd=home,
        path=[],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(printed: str) -> list[float]:
    """Return COCO's twelve figures off what the script prints."""
    found: list[float] = json.loads(re.search(r"Final results: (\[.*\])", printed)[1])
    assert len(found) == 12
    assert len(re.findall(r" = (-?\d\.\d{3})$", printed, re.MULTILINE)) == 12
    return found


@pytest.mark.parametrize("where", ["example", "contrib/example"])
def test_valid_gives_the_zoos_own_mean_average_precision(where: str, place: Path, run_python: RunPython) -> None:
    """The detector alone, with the suppression of the zoo, gives nearly the same."""
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    data = place / "coco/images/val2017"
    onnx = figures(run(run_python, place, where, "valid", data, "--batch_size", "8"))
    report = place / f"{where.replace('/', '_')}.json"
    script = ROOT / "example/detection/digit_detector/example_valid.py"
    annotations = place / "coco/annotations/instances_val2017.json"
    done = run_python(script, "--data_path", annotations, "--json", report)
    assert done.returncode == 0, done.stderr
    assert onnx[0] == pytest.approx(json.loads(report.read_text())["metric"], abs=0.03)
    if where == "example":
        return
    for batch in ("4", "5"):  # whole and in parts of different lengths
        flags = ("--target", "sdaa", "--batch_size", batch, "--dtype", "float16")
        assert figures(run(run_python, place, where, "valid", data, *flags))[0] == pytest.approx(onnx[0], abs=0.02)


@pytest.mark.parametrize("where", ["example", "contrib/example"])
@pytest.mark.parametrize("target", ["onnx", "sdaa"])
def test_one_image_and_a_folder(where: str, target: str, place: Path, run_python: RunPython) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    folder = place / "some"
    folder.mkdir(exist_ok=True)
    for image in ("0000.jpg", "0001.jpg"):
        with Image.open(DATA / "val" / image) as opened:
            opened.save(folder / image.replace("jpg", "png"))
    single = run(run_python, place, where, "single_batch", folder / "0000.png", "--target", target).splitlines()
    assert len(single) >= 2
    name, left, *_ = single[0].split()
    assert (name, int(left)) != ("", 0)
    multi = run(run_python, place, where, "multi_batch", folder, "--target", target).splitlines()
    assert multi[0] == "1: 0000.png"
    assert multi[1 : 1 + len(single)] == single
    assert "2: 0001.png" in multi
