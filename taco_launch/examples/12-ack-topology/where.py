"""Prints which GPUs this rank sees, by their numbers in nvidia-smi."""

import os
import shutil
import subprocess
import sys

smi = shutil.which("nvidia-smi") or sys.exit("there is no nvidia-smi")
lines = subprocess.check_output([smi, "--query-gpu=uuid,index", "--format=csv,noheader"], text=True).splitlines()
index = dict(line.split(", ") for line in lines)
gpus = " and ".join(f"GPU {index[each]}" for each in os.environ["CUDA_VISIBLE_DEVICES"].split(","))
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} sees {gpus}")
