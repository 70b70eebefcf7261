"""Count what the kernel knows of a rank: bytes on sockets, of files, on interfaces and HCAs.

`sockets.of_processes`, `processes.counters` and `nics.interfaces` read, the other files take what was read apart. A guard
calls them at each look and hands the numbers to `taco_launch.core.stalls`, which judges; nothing here does.
"""
