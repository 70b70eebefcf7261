"""Tell what a program asks for that a job does not give it."""

import re
from collections.abc import Iterator

from taco_launch.core.launch.command_line.nested_launcher import has_one_rank
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.launchers import launcher_of
from taco_launch.jobs.request.caller import Caller

_ELASTIC = ("hvd.elastic", "horovod.run.elastic", "elastic.run_fn")
# An import at the start of a line, or in the code of python3 -c.
_HOROVOD = re.compile(r"(?:^|[;\n])[ \t]*(?:import|from)[ \t]+horovod\b")
# A script that names it brings its own server, by which the ranks of Horovod meet without MPI.
_RENDEZVOUS = "HOROVOD_GLOO_RENDEZVOUS"
# Words of a command in which its script is looked for: python3 -u train.py
_FIRST_WORDS = 4


def remarks(spec: JobSpec, caller: Caller) -> Iterator[str]:
    """Yield a line for each thing that the job's script uses and does not get; none for any other program."""
    script = next((word for word in spec.command[:_FIRST_WORDS] if word.endswith(".py")), "")
    text = caller.read_script(script) if script else ""
    if any(word in text for word in _ELASTIC):
        yield (
            f"note: {script} uses hvd.elastic, but the number of ranks does not change while a job runs: a rank that dies ends "
            "the attempt. --backoff-limit N starts it again; keep checkpoints in files"
        )
    text = "\n".join((*spec.command, text))
    own = _RENDEZVOUS in text or any(name.startswith(_RENDEZVOUS) for name, _value in spec.env)
    if not (launcher_of(spec).is_mpi or spec.per_host or own or has_one_rank(spec)) and _HOROVOD.search(text):
        yield (
            f"warning: {script or 'the command'} imports horovod, which does not find the other ranks under --launcher "
            f"{spec.launcher}: each rank trains a model of its own. Use --launcher mpirun (the default) or hydra"
        )
