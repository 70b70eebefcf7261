"""Measure hosts beside one another: the network of every pair, CPUs, memory, disks, GPUs; name the slow ones."""
