"""Read one page with PP-OCRv4."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.page_reading.task import PageReading

MODELS = "fetch:ppocr_v4/rapidocr_onnxruntime/models"
CKPT = {
    "det": f"{MODELS}/ch_PP-OCRv4_det_infer.onnx",
    "cls": f"{MODELS}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rec": f"{MODELS}/ch_PP-OCRv4_rec_infer.onnx",
}

if __name__ == "__main__":
    cli.single(PageReading, ckpt=CKPT, data_path="data/turned.jpg")
