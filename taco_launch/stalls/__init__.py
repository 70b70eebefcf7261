"""Whether a job works or hangs, and who waits for whom: judged by progress, bytes and stacks, never by CPU use alone. Pure.

How it is to be called, once guards and supervisors do so:

- a guard takes a `Look` at each rank every few seconds: `output` from the log's size without lines that `texts.is_stall`
  recognises, `sockets` from `agent.counters.sockets`, `read`, `written`, `cpu` and `state` from `agent.counters.processes`,
  `network` from `agent.counters.nics` where the job has the host alone. Stacks (`dumps.main_stack` of what
  `py-spy dump --json --native` prints) are only taken when all else stood still for half of the stall time: they stop the
  process for a moment;
- the supervisor has the looks of all ranks and asks `judge.judge(ranks, expected, seconds)`. HUNG is a stall, with
  `groups.sentence` in its reason; UNKNOWN is shown, and ends nothing;
- `flight_recorder.verdict` and `ras.verdict` say more where torch.distributed or NCCL 2.24 is used.
"""
