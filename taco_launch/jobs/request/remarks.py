"""Tell what a program asks for that a job does not give it."""

from taco_launch.core.model.jobs import JobSpec
from taco_launch.jobs.request.caller import Caller

_ELASTIC = ("hvd.elastic", "horovod.run.elastic", "elastic.run_fn")
# Words of a command in which its script is looked for: python3 -u train.py
_FIRST_WORDS = 4


def remark(spec: JobSpec, caller: Caller) -> str:
    """Return a note on a script that uses Horovod's elastic mode, "" for any other program."""
    script = next((word for word in spec.command[:_FIRST_WORDS] if word.endswith(".py")), "")
    text = caller.read_script(script) if script else ""
    if not any(word in text for word in _ELASTIC):
        return ""
    return (
        f"note: {script} uses hvd.elastic, but the number of ranks does not change while a job runs: a rank that dies ends the "
        "attempt. --backoff-limit N starts it again; keep checkpoints in files"
    )
