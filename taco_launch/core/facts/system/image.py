"""Reads what a training image or the host itself holds: MPI, UCX, NCCL, CUDA, torch, Horovod, verbs providers, sshd."""

import re
from typing import List, Optional, Tuple

from taco_launch.core.facts.system.disks import disk
from taco_launch.core.facts.system.system import memlock
from taco_launch.core.facts.text.sections import Sections, answer, failure, files, unasked
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import Software

_VERSION = r"[0-9]{1,4}(?:\.[0-9]{1,8}){1,3}"
_FRAMEWORKS = (("tensorflow", "TensorFlow"), ("torch", "PyTorch"), ("mxnet", "MXNet"))
# As the library writes the names of the classes that are there only where it was built with them (horovod/common/ops).
_CLASSES = (
    ("12MPIAllreduceE", "MPI"),
    ("13GlooAllreduceE", "Gloo"),
    ("13NCCLAllreduceE", "NCCL"),
    ("12DDLAllreduceE", "DDL"),
    ("12CCLAllreduceE", "CCL"),
)
_LIGHT = "LIGHT_2D_ALLREDUCE"

Packages = Tuple[Tuple[str, str], ...]


def parse_image(sections: Sections) -> Found[Software]:
    """Read the probe's sections image.*; Unknown where the container could not be looked into."""
    missing = unasked(sections, "image") or failure(sections, "image.where")
    if missing is not None:
        return Unknown(missing.reason)
    where = sections["image.where"].stdout.strip()
    told = files(sections, "image.files")
    found = answer(sections, "image.found")
    python = _looked(answer(sections, "image.python"))
    libraries = _listed(answer(sections, "image.libraries"))
    packages = _packages(python)
    horovod = _package(packages, "horovod")
    limits = told.text("/proc/self/limits")
    return Software(
        where=where,
        openmpi=_openmpi(answer(sections, "image.mpirun")),
        mpirun=_program(found, "mpirun"),
        ucx=_ucx(answer(sections, "image.ucx"), libraries),
        nccl=_nccl(libraries, packages),
        cuda=_cuda(answer(sections, "image.cuda")),
        python=_python(python),
        torch=_package(packages, "torch"),
        horovod=horovod,
        horovod_build=_build(python, horovod),
        lightcc=_lightcc(python, packages, horovod),
        verbs=_verbs(libraries),
        sshd=_program(found, "sshd"),
        nccl_conf=told.text("/etc/nccl.conf"),
        memlock=memlock(limits) if isinstance(limits, str) else Unknown(limits.reason),
        shm=_shm(answer(sections, "image.shm")),
    )


def _listed(text: Found[str]) -> Found[str]:
    """Return the libraries' paths, one a line, each of them whole."""
    if isinstance(text, str) and not re.fullmatch(r"(?:/\S+/lib[\w+-]+\.so[\w.]*\n)*", text, re.ASCII):
        return Unknown(f"the libraries: {shown(text)} is not understood")
    return text


def _openmpi(text: Found[str]) -> Found[str]:
    if not isinstance(text, str):
        return text
    match = re.search(rf"(?m)^\S+ \(Open MPI\) ({_VERSION}\w*)\s*$", text)
    first = text.strip().split("\n")[0]
    if match is None and re.search(r"Intel\(R\) MPI|HYDRA|MPICH|Spectrum MPI", text):
        return Absent(f"mpirun is not Open MPI: {first}")
    return match[1] if match else Unknown(f"mpirun --version: {shown(first)} is not understood")


def _program(text: Found[str], name: str) -> Found[str]:
    if not isinstance(text, str):
        return Unknown(text.reason)
    if not re.fullmatch(r"(?:(?:mpirun|sshd) \S.*\n)*", text):
        return Unknown(f"where programs are: {shown(text)} is not understood")
    match = re.search(rf"(?m)^{name} (/.*)$", text)
    return str(match[1]) if match else Absent(f"{name}: not found")


def _ucx(text: Found[str], libraries: Found[str]) -> Found[str]:
    """Read `ucx_info -v`: `# Library version: 1.13.1`, before 1.13 `# UCT version=1.10.0 revision 7477e81`."""
    if isinstance(text, Absent) and isinstance(libraries, str) and "/libucp.so." in libraries:
        return Unknown("libucp is installed, but ucx_info, which shows its version, is not")
    if not isinstance(text, str):
        return text
    match = re.search(rf"(?m)^# (?:Library version: |UCT version=)({_VERSION})(?: .*)?$", text)
    return match[1] if match else Unknown(f"ucx_info -v: {shown(text)} is not understood")


def _nccl(libraries: Found[str], packages: Found[Packages]) -> Found[str]:
    """Return the one version that the names of libnccl's files and of NVIDIA's python packages tell."""
    if not isinstance(libraries, str):
        return Unknown(libraries.reason)
    if isinstance(packages, Unknown):
        return packages
    listed = packages if isinstance(packages, tuple) else ()
    versions: List[str] = re.findall(rf"(?m)/libnccl\.so\.({_VERSION})$", libraries)
    versions += [version for name, version in listed if name.startswith("nvidia_nccl_")]
    several = sorted(set(versions))
    if len(several) == 1:
        return several[0]
    if several:
        return Unknown(f"several versions are installed: {', '.join(several)}")
    torch = _package(packages, "torch")
    if "/libnccl.so." in libraries:
        return Unknown("libnccl exists, but its name does not show its version")
    if isinstance(torch, str) and not torch.endswith("+cpu"):
        return Unknown("libnccl is not installed; torch may contain its own copy")
    return Absent("libnccl: not found")


def _cuda(text: Found[str]) -> Found[str]:
    """Read version.json, version.txt (CUDA before 11.1), `nvcc --version`, or the words of CUDA_VERSION."""
    if not isinstance(text, str):
        return text
    match = (
        re.search(rf'"cuda"\s*:\s*\{{[^{{}}]*"version"\s*:\s*"({_VERSION})"', text)
        or re.search(rf"(?m)^CUDA Version ({_VERSION})\s*$", text)
        or re.search(rf"(?m)^Cuda compilation tools, release ({_VERSION}), V{_VERSION}\s*$", text)
    )
    return match[1] if match else Unknown(f"the version of CUDA: {shown(text)} is not understood")


def _looked(text: Found[str]) -> Found[str]:
    """Return what the probe's python program tells: the version, packages, libraries of Horovod and what these hold."""
    form = rf"version {_VERSION}\n(?:package \w+ [0-9][\w.!+~]*\n|library /.*/horovod/\w+/mpi_lib[^/\n]*\.so\n|holds \w+\n)*"
    if isinstance(text, str) and not re.fullmatch(form, text, re.ASCII):
        return Unknown(f"python3: {shown(text)} is not understood")
    return text


def _python(text: Found[str]) -> Found[str]:
    if not isinstance(text, str):
        return text
    return text.partition("\n")[0].partition(" ")[2]


def _packages(text: Found[str]) -> Found[Packages]:
    """Return (name, version) of each package, in the order in which python finds them."""
    if not isinstance(text, str):
        return text
    return tuple((name.lower(), version) for name, version in re.findall(r"(?m)^package (\w+) (\S+)$", text))


def _package(packages: Found[Packages], name: str) -> Found[str]:
    if not isinstance(packages, tuple):
        return packages
    return next((version for each, version in packages if each == name), None) or Absent(f"{name}: no such package")


def _held(text: Found[str]) -> Optional[Tuple[List[str], List[str]]]:
    """Return the folders of Horovod's libraries, and what they hold; None where there are none."""
    if not isinstance(text, str):
        return None
    folders = re.findall(r"(?m)^library .*/horovod/(\w+)/mpi_lib[^/]*\.so$", text)
    return (folders, re.findall(r"(?m)^holds (\w+)$", text)) if folders else None


def _build(text: Found[str], horovod: Found[str]) -> Found[Tuple[str, ...]]:
    """Return what Horovod was built with, in the words of `horovodrun --check-build`."""
    if not isinstance(horovod, str):
        return horovod
    held = _held(text)
    if held is None:
        return Unknown(f"horovod {horovod} is installed, but its library is not in its folder")
    folders, names = held
    return tuple(
        [word for folder, word in _FRAMEWORKS if folder in folders] + [word for name, word in _CLASSES if name in names]
    )


def _lightcc(text: Found[str], packages: Found[Packages], horovod: Found[str]) -> Found[str]:
    """Return LightCC's version: it is a Horovod, and whether one is it shows in the variables that its library knows."""
    for name in ("lightcc", "light_cc"):
        version = _package(packages, name)
        if isinstance(version, str):
            return version
    if not isinstance(horovod, str):
        return horovod
    held = _held(text)
    if held is None:
        return Unknown(f"horovod {horovod} is installed, but its library is not in its folder")
    if _LIGHT in held[1]:
        return Unknown(f"horovod {horovod} supports {_LIGHT}, but the version of LightCC is not shown")
    return Absent(f"horovod {horovod} does not support {_LIGHT}")


def _verbs(libraries: Found[str]) -> Found[Tuple[str, ...]]:
    """Return the providers of libibverbs (`mlx5`), from the names of the files that it loads: `libmlx5-rdmav34.so`."""
    if not isinstance(libraries, str):
        return Unknown(libraries.reason)
    if "/libibverbs.so." not in libraries:
        return Absent("libibverbs: not found")
    return tuple(sorted(set(re.findall(r"(?m)/lib([\w-]+)-rdmav[0-9]+\.so$", libraries))))


def _shm(text: Found[str]) -> Found[int]:
    if not isinstance(text, str):
        return Unknown(text.reason)
    found = disk(text)
    if isinstance(found, tuple):
        return found[0].size if len(found) == 1 else Unknown(f"df /dev/shm: {len(found)} rows")
    return Unknown(found.reason)
