"""What the agent shows of jobs and hosts, and what it clears away on somebody's word: list, get, top, prune."""

import subprocess
import time
from typing import Any, Callable, Dict, Iterable, Mapping, Sequence, Union

from taco_launch.agent import program, ssh
from taco_launch.agent.host import occupancy
from taco_launch.agent.rank import exec_session
from taco_launch.agent.store import job_index, records, recovery, removal
from taco_launch.agent.store.folders import JobFolder, Jobs
from taco_launch.errors import TacoLaunchError
from taco_launch.model.codec import to_json
from taco_launch.model.jobs import JobRecord, JobSpec
from taco_launch.model.rows import decoded, encoded
from taco_launch.protocol.framing import parsed

# nvidia-smi alone has 30 seconds on a host.
_SLOTS_SECONDS = 40.0

Frames = Iterable[Any]


def shown(folder: JobFolder) -> Dict[str, Any]:
    """Return a job as it stands at this moment."""
    return told(folder, records.read_spec(folder), recovery.look(folder))


def told(folder: JobFolder, spec: JobSpec, record: JobRecord) -> Dict[str, Any]:
    """Return what is known of a job in the form that callers read."""
    return {"spec": to_json(spec), "record": to_json(record), "folder": str(folder.path)}


def _list(jobs: Jobs, _agent: str, _request: Mapping[str, Any]) -> Frames:
    """Yield a line of every job, all in one frame."""
    found = job_index.look(jobs)
    yield {"rows": found.rows}
    for warning in found.warnings:
        yield {"warning": warning}


def _get(jobs: Jobs, _agent: str, request: Mapping[str, Any]) -> Frames:
    folder = jobs.get(request["name"])
    yield {"job": {**shown(folder), "events": to_json(records.read_events(folder))}}


def _top(_jobs: Jobs, agent: str, request: Mapping[str, Any]) -> Frames:
    """Yield who has which slots of each of the `hosts`: (name, slots, gpus) of each; `here` is this one's name."""
    hosts = request["hosts"]

    def one(host: Sequence[Any]) -> Union[Dict[str, Any], str]:
        name, slots, gpus = host
        words = occupancy.arguments(slots, gpus)
        return _slots_here(agent, words) if name == request["here"] else _slots_there(name, agent, words)

    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - no other call needs it, and `submit` would wait

    with ThreadPoolExecutor(max(1, min(len(hosts), ssh.MOST_AT_ONCE))) as pool:
        for (name, _slots, _gpus), answer in zip(hosts, pool.map(one, hosts)):
            problem = answer if isinstance(answer, str) else answer.get("error")
            yield {"host": name, **({"problem": problem} if problem else {"occupancy": answer})}


def _slots_here(agent: str, words: Sequence[str]) -> Union[Dict[str, Any], str]:
    try:
        done = subprocess.run(
            program.argv(agent, "slots", *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SLOTS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_SLOTS_SECONDS:g} s"
    return parsed(done.stdout) or ssh.last_line(done.stderr) or f"exit {done.returncode}"


def _slots_there(host: str, agent: str, words: Sequence[str]) -> Union[Dict[str, Any], str]:
    """Ask another host; one that has not got this agent yet is given it first, as at the start of a job."""
    ((_host, answer),) = ssh.ask([host], agent, "slots", *words, seconds=_SLOTS_SECONDS)
    if not (isinstance(answer, str) and ssh.lacks_agent(answer)):
        return answer
    put = ssh.Put(host, agent)
    problem = put.problem()
    while problem is None:
        time.sleep(0.05)
        problem = put.problem()
    put.close()
    return problem or ssh.ask([host], agent, "slots", *words, seconds=_SLOTS_SECONDS)[0][1]


def _prune(jobs: Jobs, agent: str, request: Mapping[str, Any]) -> Frames:
    """Remove the jobs that ended more than `since` seconds ago, of all owners or one; with `dry_run` only tell which."""
    now = time.time()
    gone = []
    for row in map(decoded, job_index.look(jobs).rows):
        if row.ended is None or now - row.ended < request["since"]:
            continue
        if request["owner"] is not None and row.owner not in ("", request["owner"]):
            continue
        try:
            if not request["dry_run"]:
                for warning in removal.remove(jobs, agent, jobs.get(row.name)):
                    yield {"warning": warning}
            gone.append(encoded(row))
        except TacoLaunchError as error:  # somebody else was faster
            yield {"warning": error.message}
    yield {"rows": gone}


OPERATIONS: Dict[str, Callable[[Jobs, str, Mapping[str, Any]], Frames]] = {
    "list": _list,
    "get": _get,
    "top": _top,
    "prune": _prune,
    "exec": exec_session.run,
    "exec-end": exec_session.end,
}
