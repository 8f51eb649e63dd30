"""Evaluate PP-OCRv4 on labelled pages: character error rate, lines found and read, timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.page_reading.task import PageReading

FILES = {"det": "ch_PP-OCRv4_det", "cls": "ch_ppocr_mobile_v2.0_cls", "rec": "ch_PP-OCRv4_rec"}
CKPT = {part: f"fetch:ppocr_v4/rapidocr_onnxruntime/models/{file}_infer.onnx" for part, file in FILES.items()}

if __name__ == "__main__":
    cli.valid(PageReading, ckpt=CKPT, data_path="data", batch_size=4)
