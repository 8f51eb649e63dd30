"""Scripts in the style of the historical zoos, for SSD and YOLOv9. Do not modernise them."""

HEAD = """
import argparse, os, sys, time
from pathlib import Path
import numpy as np
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))
import torch
from PIL import Image
from tqdm import tqdm

from engine.tecoinfer_pytorch import TecoInferEngine
from engine.base import PASS_PATH
{imports}

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", type=str)
    parser.add_argument("--input_name", type=str, default="input")
    parser.add_argument("--data_path", type=str)
    parser.add_argument("--data_config", type=str, default="./coco.yaml")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--input_size", type=int, default=160)
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--target", default="sdaa")
    parser.add_argument("--conf_thres", type=float, default=0.3)
    parser.add_argument("--dtype", type=str, default="float32")
    parser.add_argument("--pass_path", type=str, default=PASS_PATH / "default_pass.py")
    return parser.parse_args()

def engine_of(opt):
    spas = int(os.getenv("MAX_ENGINE_NUMS", 4))
    return TecoInferEngine(ckpt=opt.ckpt,
                           batch_size=opt.batch_size,
                           input_size=[[max(opt.batch_size // spas, 1), 3, opt.input_size, opt.input_size]],
                           input_name=opt.input_name,
                           target=opt.target,
                           dtype=opt.dtype,
                           pass_path=opt.pass_path,
                           rank=int(os.environ.get("OMPI_COMM_WOLRD_RANK", 0)))
"""

SSD_IMPORTS = """
from torch.utils.data import DataLoader
from utils.preprocess.pytorch.ssd import preprocess
from utils.postprocess.pytorch.ssd import postprocess, get_metrics
from utils.datasets.ssd_dataset import VOCDataset, collate_fn
"""

SSD_VALID = """
if __name__ == "__main__":
    opt = parse()
    infer_engine = engine_of(opt)
    dataset = VOCDataset(opt.data_path, opt.input_size)
    dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=False, collate_fn=collate_fn)
    predictions, run_time = {}, []
    for images, targets, image_ids in tqdm(dataloader, desc="inferencing", disable=True):
        images = preprocess(images, half=opt.dtype == "float16")
        prec = infer_engine(images)
        run_time.append(infer_engine.run_time)
        prec = (torch.from_numpy(prec[:, :, :21]).float(), torch.from_numpy(prec[:, :, 21:]).float())
        prec = postprocess(prec)
        predictions.update({int(image_id): result for image_id, result in zip(image_ids, prec)})
    metrics = get_metrics(dataset, predictions)
    if "sdaa" in opt.target:
        infer_engine.release()
    print("mAP@0.5~0.95: ", metrics["metrics"]["mAP"])
"""

SSD_SHOW = """
def readable(prec, conf_thres):
    class_names = ["__background__", *"0123456789"]
    text = ""
    for i in range(prec["boxes"].shape[0]):
        confidence = prec["scores"][i]
        if confidence < conf_thres:
            continue
        x1, y1, x2, y2 = map(int, prec["boxes"][i])
        text += f"{i + 1}: {class_names[int(prec['labels'][i])]} ({x1}, {y1}, {x2}, {y2}) {confidence:.2f}\\n"
    return text

def show(infer_engine, opt, file_path):
    images = preprocess(file_path, half=opt.dtype == "float16", resize_shape=opt.input_size)
    prec = infer_engine(images)
    prec = (torch.from_numpy(prec[:, :, :21]).float(), torch.from_numpy(prec[:, :, 21:]).float())
    print(readable(postprocess(prec)[0], opt.conf_thres))
"""

YOLO_IMPORTS = """
from utils.preprocess.pytorch.{family} import preprocess
from utils.postprocess.pytorch.{family} import postprocess, get_metrics, get_stats
from utils.datasets.{dataset} import create_dataloader
"""

YOLO_VALID = """
if __name__ == "__main__":
    opt = parse()
    iouv = torch.linspace(0.5, 0.95, 10, device="cpu")
    niou = iouv.numel()
    infer_engine = engine_of(opt)
    dataloader = create_dataloader(opt.data_path,
                                   imgsz=opt.input_size,
                                   batch_size=opt.batch_size,
                                   stride=32,
                                   single_cls=False,
                                   pad=0.5,
                                   rect=False,
                                   workers=opt.num_workers,
                                   min_items=0,
                                   prefix="")[0]
    stats, seen, run_time = [], 0, []
    for batch_i, (input, targets, paths, shapes) in enumerate(tqdm(dataloader, disable=True)):
        images = preprocess(input, half=opt.dtype == "float16")
        prec = infer_engine(images)
        run_time.append(infer_engine.run_time)
        prec[0] = torch.from_numpy(prec[0])
        targets, preds = postprocess(images, prec, CONFIG targets, device="cpu")
        stats, seen = get_stats(images, preds, paths, shapes, stats, targets, niou, iouv, seen, device="cpu")
    tp, fp, p, r, f1, mp, mr, map50, ap50, map, nt = get_metrics(stats, CONFIG)
    print(f"mAP@0.5~0.95: {map:f}")
    print(("%22s" + "%11i" * 2 + "%11.3g" * 4) % ("all", seen, nt.sum(), mp, mr, map50, map))
    if "sdaa" in opt.target:
        infer_engine.release()
"""

YOLO_SHOW = """
def show(infer_engine, opt, file_path):
    source_image = np.array(Image.open(file_path))
    images = preprocess(file_path, half=opt.dtype == "float16", resize_shape=opt.input_size)
    prec = infer_engine(images)
    prec[0] = torch.from_numpy(prec[0])
    _, preds = postprocess(images, prec, KEYWORD targets=None, source_image=source_image,
                           conf_thres=opt.conf_thres, device="cpu")
    print(preds)
"""

SINGLE = """
if __name__ == "__main__":
    opt = parse()
    show(engine_of(opt), opt, opt.data_path)
"""

MULTI = """
if __name__ == "__main__":
    opt = parse()
    infer_engine = engine_of(opt)
    for idx, file_name in enumerate(sorted(os.listdir(opt.data_path))):
        print(f"image {idx + 1}: {file_name}")
        show(infer_engine, opt, os.path.join(opt.data_path, file_name))
"""


def scripts(family: str) -> dict[str, str]:
    """Return the three scripts of ``ssd``, ``yolov9m`` or ``detection`` by their files' names."""
    if family == "ssd":
        head, valid, show = HEAD.replace("{imports}", SSD_IMPORTS), SSD_VALID, SSD_SHOW
    else:
        dataset = {"yolov9m": "yolov9m_dataset", "detection": "object_detection_dataset"}[family]
        config = {"yolov9m": "opt.data_config", "detection": ""}[family]
        head = HEAD.replace("{imports}", YOLO_IMPORTS.format(family=family, dataset=dataset))
        valid = YOLO_VALID.replace("CONFIG targets", f"{config}, targets".lstrip(", ")).replace(
            ", CONFIG)", f", {config})" if config else ")"
        )
        show = YOLO_SHOW.replace("KEYWORD ", f"data_config={config}, " if config else "")
    return {
        "example_valid.py": head + valid,
        "example_single_batch.py": head + show + SINGLE,
        "example_multi_batch.py": head + show + MULTI,
    }
