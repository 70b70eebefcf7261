"""Tell what a program asks for that a job does not give it."""

import ast
import itertools
from collections.abc import Iterator

from taco_launch.core.launch.command_line.nested_launcher import has_one_rank
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.jobs.request.caller import Caller

_ELASTIC = ("hvd.elastic", "horovod.run.elastic", "elastic.run_fn")
# A script that names it brings its own server, by which the ranks of Horovod meet without MPI.
_RENDEZVOUS = "HOROVOD_GLOO_RENDEZVOUS"
# Words of a command in which its script is looked for: python3 -u train.py
_FIRST_WORDS = 4


def remarks(spec: JobSpec, caller: Caller) -> Iterator[str]:
    """Yield a line for each thing that the job's script uses and does not get; none for any other program."""
    script = next((word for word in spec.command[:_FIRST_WORDS] if word.endswith(".py")), "")
    text = caller.read_script(script) if script else ""
    launcher = launcher_of(spec)
    if any(word in text for word in _ELASTIC) and not launcher.is_always_elastic:
        yield (
            f"note: {script} uses hvd.elastic, but under --launcher {launcher.name} the number of ranks does not change while a job "
            "runs: a rank that dies ends the attempt. Use --launcher horovod --elastic --hosts MIN:MAX"
        )
    code = [text, *(word for before, word in itertools.pairwise(spec.command) if before == "-c")]
    own = any(_RENDEZVOUS in each for each in code) or any(name.startswith(_RENDEZVOUS) for name, _value in spec.env)
    if not (launcher.is_mpi or launcher.is_always_elastic or spec.per_host or own or has_one_rank(spec)) and any(
        map(_needs_horovod, code)
    ):
        yield (
            f"warning: {script or 'the command'} imports horovod, which does not find the other ranks under --launcher "
            f"{spec.launcher}: each rank trains a model of its own. Use --launcher mpirun (the default) or hydra"
        )


def _needs_horovod(code: str) -> bool:
    """Return whether a program imports horovod wherever it runs: not in a condition, a function or a `try`."""
    if "horovod" not in code:
        return False
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the ranks' Python may be newer
        return False
    names = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    return any(name.split(".")[0] == "horovod" for name in names)
