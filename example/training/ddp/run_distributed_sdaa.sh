#!/bin/bash
# Starts one process for each device: bash run_distributed_sdaa.sh [arguments of the script]
# SDAA_VISIBLE_DEVICES selects devices, NPROC_PER_NODE their number (default: all visible ones).
set -eu
cd "$(dirname "$0")"
count=${NPROC_PER_NODE:-$(python -c "import torch, torch_sdaa; print(torch.sdaa.device_count())" 2>/dev/null)}
exec python -m torch.distributed.run --standalone --nproc_per_node="$count" 'train.py' "$@"
