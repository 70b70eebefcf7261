#!/usr/bin/env bash
set -euo pipefail
GPUS=${1:-8}
EPOCHS=${EPOCHS:-3}
cd /work/code
for size in 1 2; do
  deepspeed --num_gpus 4 --no_local_rank train.py --epochs "$EPOCHS" --size "$size"
done
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node "$GPUS" eval.py || exit 1
python report.py
