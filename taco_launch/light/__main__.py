"""Run a program with LIGHT_* in effect, without a change to it: `python -m taco_launch.light train.py ...`."""

import functools
import importlib
import importlib.abc
import importlib.util
import os
import runpy
import sys
from importlib.machinery import ModuleSpec
from typing import Any, List, Optional

from torch.nn.parallel import DistributedDataParallel

from taco_launch.light.ddp import attach

_USAGE = "usage: python -m taco_launch.light (PROGRAM.py | -m MODULE) [ARGUMENT]...\n"


class _AfterHorovod(importlib.abc.MetaPathFinder):
    """Replace `horovod.torch.DistributedOptimizer` when, and if, the program imports it."""

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> Optional[ModuleSpec]:
        if fullname != "horovod.torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            loader.exec_module = functools.partial(_execute, loader.exec_module)
        return spec


def _execute(execute: Any, module: Any) -> None:
    execute(module)
    module.DistributedOptimizer = importlib.import_module("taco_launch.light.horovod").DistributedOptimizer


def attach_to_all() -> None:
    """Attach to each DistributedDataParallel, and to each optimizer of Horovod, that this process will make."""
    plain = DistributedDataParallel.__init__

    @functools.wraps(plain)
    def attached(self: DistributedDataParallel, *args: Any, **options: Any) -> None:
        plain(self, *args, **options)
        attach(self)

    DistributedDataParallel.__init__ = attached  # type: ignore[method-assign]
    sys.meta_path.insert(0, _AfterHorovod())


def main(argv: List[str]) -> None:
    """Run the program with its arguments, as `python PROGRAM.py` or `python -m MODULE` would."""
    is_module = argv[:1] == ["-m"]
    command = argv[1:] if is_module else argv
    if not command or command[0].startswith("-"):
        sys.exit(_USAGE)
    attach_to_all()
    sys.argv = command
    if is_module:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))  # noqa: PTH100, PTH120 - as Python itself
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
