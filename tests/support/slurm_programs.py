"""Programs that print what sinfo and scontrol of a Slurm 22.05 of two nodes printed (captured): for pages and tests without Slurm."""

from pathlib import Path

_SINFO = "n1|10.0.0.1|gpu*|0/2/0/2|gpu:2|gpu:0|idle|\nn2|10.0.0.2|gpu*|0/2/0/2|gpu:2|gpu:0|idle|\n"
_SCONTROL = "ClusterName             = test\n"


def write_programs(folder: Path) -> Path:
    """Write the programs into a folder, which is made, and return it for PATH."""
    folder.mkdir(exist_ok=True)
    for name, text in (("sinfo", _SINFO), ("scontrol", _SCONTROL)):
        program = folder / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n", "utf-8")
        program.chmod(0o755)
    return folder
