"""What the kernel counts of a rank: bytes on its sockets, of its files, and on the host's interfaces and HCAs.

`sockets.of_processes`, `processes.counters` and `nics.interfaces` read, the other files take what was read apart. A guard
calls them at each look and hands the numbers to `taco_launch.stalls`, which judges; nothing here does.
"""
