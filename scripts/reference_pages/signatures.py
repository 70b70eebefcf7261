"""The reference of failures: every text that `explain` knows, with its cause and what to do, a page for each source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from reference_pages.markdown import code, prose, table
from taco_launch.core.signatures.known import Signature
from taco_launch.core.signatures.known.containers import CONTAINERS, DOCKER
from taco_launch.core.signatures.known.cuda import CUDA
from taco_launch.core.signatures.known.fabrics import EFA, UCX
from taco_launch.core.signatures.known.frameworks import FRAMEWORKS
from taco_launch.core.signatures.known.help_topics import HELP_TOPICS
from taco_launch.core.signatures.known.mpich import MPICH
from taco_launch.core.signatures.known.mpirun import LAUNCHER, RANKS
from taco_launch.core.signatures.known.nccl import NCCL, NCCL_DEVICES
from taco_launch.core.signatures.known.open_mpi import OPEN_MPI
from taco_launch.core.signatures.known.slurm import SLURM
from taco_launch.core.signatures.known.ssh import SSH
from taco_launch.core.signatures.known.system import SYSTEM
from taco_launch.core.signatures.known.torch import TORCH, TORCH_RANKS
from taco_launch.core.signatures.known.training import TRAINING
from taco_launch.core.signatures.known.unknown import UNKNOWN
from taco_launch.core.signatures.qualifiers import QUALIFIERS

_INTRODUCTION = """\
# Known failures

These pages are generated from `taco_launch/core/signatures` by `scripts/generate_docs.py`. They list the texts that `taco-launch explain LOG`
finds in a log, each under its name, with the cause and the next step. The search of this site finds a failure by its name or by a word
of its text.

`explain` fills in hosts, ranks and numbers, which are in braces here. Where a slash has a space on both sides, the log decides which of
the texts is shown. A number behind a name marks
the cause and the next step that replace the first ones where the log's lines near the text say more.
"""
# In the search, guides come before so many failures that have their words.
_AFTER_GUIDES = "---\nsearch:\n  boost: 0.7\n---\n\n"
_OF_MPIRUN = "mpirun-"
# By the name of the page: its title, what it is about, and its failures.
SOURCES: Mapping[str, tuple[str, str, Sequence[Signature]]] = {
    "ssh": ("ssh", "ssh and sshd, when a launcher cannot start its daemon", SSH),
    "mpirun": ("mpirun", "mpirun and torchrun, about hosts, slots, daemons and ranks that end", (*LAUNCHER, *RANKS)),
    "mpirun-help": (
        "Help texts of mpirun",
        "the help texts of mpirun 4 and 5 and of PRRTE",
        tuple(each for each in HELP_TOPICS if each.name.startswith(_OF_MPIRUN)),
    ),
    "open-mpi": ("Open MPI", "Open MPI's library in the ranks: transports, components, shared memory", OPEN_MPI),
    "open-mpi-help": (
        "Help texts of Open MPI",
        "the help texts of Open MPI's library and of PMIx",
        tuple(each for each in HELP_TOPICS if not each.name.startswith(_OF_MPIRUN)),
    ),
    "mpich": ("MPICH and Intel MPI", "MPICH, Intel MPI and Hydra, their launcher", MPICH),
    "slurm": ("Slurm", "slurmstepd, srun, sbatch and their plugins", SLURM),
    "nccl": ("NCCL", "NCCL's connections, settings and ranks that do not agree", NCCL),
    "nccl-devices": ("NCCL: devices and links", "NCCL, about GPUs, HCAs, NVLink and memory", NCCL_DEVICES),
    "ucx": ("UCX", "UCX and the kernel's RDMA drivers", UCX),
    "efa": ("libfabric", "libfabric: EFA and PSM", EFA),
    "cuda": ("CUDA", "CUDA's runtime, driver and libraries", CUDA),
    "torch": ("PyTorch", "torch and torchrun: rendezvous, devices, data loaders", TORCH),
    "torch-ranks": ("PyTorch: ranks", "torch.distributed, about ranks that do not meet or do not agree", TORCH_RANKS),
    "training": ("Horovod, TensorFlow, JAX, Python", "Horovod, TensorFlow, JAX and Python in the ranks", TRAINING),
    "frameworks": ("Frameworks", "Lightning, accelerate, DeepSpeed, Ray, Megatron, vLLM and others", FRAMEWORKS),
    "docker": ("Docker", "Docker and NVIDIA's container runtime", DOCKER),
    "containers": ("Other containers", "CDI, registries, enroot, pyxis and Kubernetes", CONTAINERS),
    "system": ("System", "the NVIDIA driver and the kernel; missing files, memory and processes", SYSTEM),
    "unknown": ("Other failures", "programs that report a failure which no other entry recognizes", UNKNOWN),
}
# What is told only with a value, and what else.
_CHOICE = re.compile(r"\[\[\w+\?(.*?)(?:\|\|(.*?))?\]\]")
# Where one of two choices is told.
_NEXT_CHOICE = re.compile(r"\]\](?=\[\[\w+\?\w)")


def pages() -> Mapping[str, str]:
    """Return the text of each page by its name."""
    rows = (
        (f"[{title}]({name}.md)", prose(about), str(len(failures)))
        for name, (title, about, failures) in SOURCES.items()
    )
    index = [_INTRODUCTION, *table(("Source", "Who prints them", "Failures"), rows)]
    found = {name: "\n".join(_page(*source)) for name, source in SOURCES.items()}
    return {"index": "\n".join(index), **found}


def _page(title: str, about: str, failures: Sequence[Signature]) -> Iterator[str]:
    yield f"{_AFTER_GUIDES}# {title}\n"
    yield f"Failures that `explain` finds in a log. They come from {prose(about)}. [Known failures](index.md) lists the other sources.\n"
    for each in sorted(failures, key=lambda signature: signature.name):
        yield f"## {each.name}\n"
        yield f"In the log: {', '.join(map(code, each.keys))}\n"
        yield f"Cause: {_shown(each.cause)}\n"
        yield f"Next: {_shown(each.next)}\n"
        for number, one in enumerate(QUALIFIERS.get(each.name, ()), 2):
            yield f"## {each.name} ({number})\n"
            yield f"Cause: {_shown(one.cause)}\n"
            yield f"Next: {_shown(one.next)}\n"


def _shown(text: str) -> str:
    """Return a text with its choices; braces that are doubled are no value."""
    told = _CHOICE.sub(_either, _NEXT_CHOICE.sub("]] / ", text))
    return prose(told.replace("{{", "{").replace("}}", "}"))


def _either(match: re.Match[str]) -> str:
    return f"{match[1]} / {match[2]}" if match[2] else match[1]
