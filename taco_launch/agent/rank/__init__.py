"""Wrap a rank and mpirun's daemon; run commands, files and ports next to a rank."""
