"""Evaluate a network for image restoration: PSNR, SSIM and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.image_restoration.task import ImageRestoration

if __name__ == "__main__":
    cli.valid(ImageRestoration, ckpt="edsr_baseline_x2_dyn.onnx", data_path="../espcn_x2/data/val", batch_size=16)
