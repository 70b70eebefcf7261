"""Whether what runs is what was planned: NCCL's own log read, and a RunPlan compared with what is seen. Pure.

How it is to be called, once the guard and the supervisor do so:

- the rank wrapper sets NCCL_DEBUG_FILE to a file per process (unless the user set NCCL_DEBUG), and the guard reads what
  is new in these files until the run is verified, at most `nccl_log.MOST_CHARACTERS` of each: `nccl_log.NcclReader.feed`,
  `NcclReader.log`; the logs of all hosts together are `nccl_log.together`;
- the guard sends `SeenRank`s (the wrapper's environment, `agent.counters.sockets.of_processes` for the sockets) and one
  `SeenHost` each to the supervisor;
- the supervisor calls `compare.verify(plan, seen)` with what it has, at each arrival and 60 s after the start, and again
  when a later log brings another communicator. True and False are events, Unknown is one when the time is over.
"""
