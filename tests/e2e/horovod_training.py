"""Count steps by `hvd.elastic` over the ranks that there are, in memory alone: `horovod_training.py LAST [FAIL_AT]`.

A second argument names a step at which the last rank dies, as long as there are three.
"""

import os
import sys
import time

import horovod.torch as hvd
import torch

LAST = int(sys.argv[1])
FAIL_AT = int(sys.argv[2]) if len(sys.argv) > 2 else -1
hvd.init()
model = torch.nn.Linear(1, 1)
state = hvd.elastic.TorchState(model=model, step=0)
print(f"begins with {hvd.size()} ranks", flush=True)


@hvd.elastic.run  # type: ignore[untyped-decorator, unused-ignore]
def train(state: hvd.elastic.TorchState) -> None:
    while state.step < LAST:
        ranks = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="ranks")
        if state.step == FAIL_AT and int(ranks) == 3 and hvd.rank() == 2:
            os._exit(7)
        state.step += 1
        if hvd.rank() == 0:
            print(f"step {state.step}/{LAST} ranks {int(ranks)} weight {model.weight.item():.6f}", flush=True)
        time.sleep(0.1)
        state.commit()


train(state)
