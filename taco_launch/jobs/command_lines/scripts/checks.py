"""Launchers of a script that only look at its hosts (`srun hostname`), or prepare them: no jobs beside a real one. Pure."""

from collections.abc import Sequence

from taco_launch.core.launch.command_line.nested_launcher import bare
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.shell_script import of_line, read

_LEFT_OUT = "a check, without effect on the job: left out"
_PREPARES = "it prepares the hosts, and is no job: prepare them, or the image, before the job starts"
_OF_PYTHON = ("python", "python3", "torchrun")
_MOST_NESTED = 4  # sh -c "sh -c '...'"
_LOOK = (
    "hostname nvidia-smi rocm-smi rocminfo dcgmi echo printf date env printenv which whereis type pwd id whoami uname"
    " lscpu lspci lsmod lstopo free df nproc uptime true ls ibstat ibstatus ibv_devinfo ibv_devices ofed_info"
    " ompi_info ucx_info fi_info scontrol sinfo squeue module"
)
_MOVE = "mkdir rmdir cp mv rm ln scp rsync tar unzip chmod touch pip pip3"
_KINDS = {**dict.fromkeys(_LOOK.split(), _LEFT_OUT), **dict.fromkeys(_MOVE.split(), _PREPARES)}


def why_none(program: Sequence[str], depth: int = 0) -> str:
    """Return why the program of a launcher is no job beside another one, "" where it is one."""
    behind = bare(program)[2]
    if not behind:  # env, or numactl --hardware
        return _LEFT_OUT
    name = behind[0].rpartition("/")[2]
    if name.startswith("python"):
        is_asked = behind[1:2] in (("--version",), ("-V",))
        return _LEFT_OUT if is_asked else _PREPARES if behind[1:4] == ("-m", "pip", "install") else ""
    script = of_line(behind) if depth < _MOST_NESTED else ""
    whys = {why_none(each.words, depth + 1) for each in read(script).commands} if script else {_KINDS.get(name, "")}
    return "" if "" in whys else max(whys, default="")


def is_of_python(words: Sequence[str]) -> bool:
    """Return whether a command starts a program of Python, which is a job of one rank where there is no launcher."""
    return "".join(bare(words)[2][:1]).rpartition("/")[2].startswith(_OF_PYTHON)


def behind_pipes(commands: Sequence[ScriptCommand], lines: Sequence[int]) -> set[tuple[tuple[str, str], ...]]:
    """Return what the commands redirect that read the output of the commands of some lines, or of each other."""
    reading = set()
    is_read = False
    for each in commands:
        is_behind = any(sign == "|<" for sign, _word in each.redirected)
        is_read = is_read if is_behind else each.line in lines
        if is_read and is_behind:
            reading.add(each.redirected)
    return reading
