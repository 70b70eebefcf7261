"""Draw jobs and their slots as tables: pure, given the time."""

import time
from collections.abc import Sequence
from typing import Any

from taco_launch.cli.output import choice_tables
from taco_launch.cli.output.mpi_job import conditions, moment, mpi_job
from taco_launch.cli.output.render import (
    columns,
    job_fields,
    more_hosts,
    one_line,
    printable,
    with_inventory_option,
)
from taco_launch.core.command import shell
from taco_launch.core.errors import CANNOT_PLACE
from taco_launch.core.lifecycle import goodput
from taco_launch.core.lifecycle.goodput import time_spent
from taco_launch.core.lifecycle.retries import most_attempts
from taco_launch.core.lifecycle.state import FOR_SLOTS, PLACED, RESTARTING, SUSPENDED, past
from taco_launch.core.lifecycle.waits import pending_reasons
from taco_launch.core.manifest import size_text
from taco_launch.core.messages.occasions import NOT_NOTIFIED
from taco_launch.core.model.choices import GpuChoice
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.job_rows import JobRow, row_of
from taco_launch.core.model.job_view import HostUsages, JobView, LastRun, age
from taco_launch.core.model.jobs import JobState, Restart
from taco_launch.core.model.plans import numbered
from taco_launch.core.model.stalls import HANGS, doing, shown_time
from taco_launch.core.usage.averages import over_hosts
from taco_launch.core.usage.cells import cells
from taco_launch.core.usage.hints import hints
from taco_launch.hosts.inventory.ranges import fold

# A job on more hosts is shown without the ranks of each.
_MOST_WITH_RANKS = 8
# Of a reason, a cell of a table shows so many letters; `get` has all.
_MOST_IN_CELL = 120
# Below so many seconds, and where it has trained for nearly all of its time, `get` does not tell how a job spent that.
_SHORT_JOB, _MOSTLY = 60, 0.95


def job_list(rows: Sequence[JobRow], now: float, *, wide: bool) -> str:
    """Return the table of `list`, jobs that ended behind all others; `now` is in seconds since the epoch."""
    header = ["NAME", "STATUS", "LAUNCHER", "RANKS", "HOSTS", "AGE"]
    more = ["DURATION", "EXIT", "VERIFIED", "QUEUE", "PRIORITY", "OWNER", "REASON", "COMMAND", "PROGRESS", "LAST LINE"]
    cells = []
    for row in sorted(rows, key=lambda row: row.state.is_terminal):
        hosts = () if row.state.waits else row.hosts
        line = [row.name, row.state.value, row.launcher, str(row.np or row.requested or "-"), nodes(hosts)]
        line.append(age_of(row, now))
        if wide:
            training = row.training(now)
            line += ["" if training is None else age(training), "" if row.exit_code is None else str(row.exit_code)]
            line += [row.verified, row.queue, str(row.priority), row.owner, _in_short(row)]
            line += [_cut(row.command), row.progress, _cut(row.last_line)]
        cells.append(line)
    return columns(header + (more if wide else []), cells, numbers=("RANKS", "EXIT", "PRIORITY"))


def one_job(job: JobView, now: float, *, wide: bool) -> str:
    """Return what `get` shows: how the job is and why, where it runs and how far it is, then what it is, then its ranks' lines."""
    row = row_of(job.spec, job.record)
    blocks = [
        headed(state(job, now, wide=wide)),
        headed((*_what(job, row), *(_more(job) if wide else ()))),
        *below(job, now),
    ]
    if wide:
        blocks += [_choices(job), _conditions(job), _events(job)]
    return "\n\n".join(block for block in blocks if block)


def about(job: JobView) -> list[tuple[str, str]]:
    """Return what a job is: (label, value), "" where it has none."""
    return [*_what(job, row_of(job.spec, job.record)), *_more(job)]


def state(job: JobView, now: float, *, wide: bool) -> list[tuple[str, str]]:
    """Return how a job is and why, where it runs and how far it is: (label, value), "" where it has none."""
    row = row_of(job.spec, job.record)
    training = row.training(now)
    return [
        ("STATUS", row.state.value),
        *why(job),
        *_verified(job),
        ("HOSTS", _hosts(job)),
        *_said(job, now),
        ("DURATION", "" if training is None else age(training)),
        ("USES", _uses(job)),
        ("GOODPUT", _goodput(job, now, wide=wide)),
        ("NOT SENT", next((event.reason for event in reversed(job.events) if event.kind == NOT_NOTIFIED), "")),
    ]


def _hosts(job: JobView) -> str:
    """Return the hosts of a job that has a place, a few with their ranks; "" while it waits."""
    record = job.record
    if record.state.waits:
        return ""  # where an earlier attempt was is over
    if not record.shares or len(record.shares) > _MOST_WITH_RANKS:
        return nodes(record.hosts, "")
    return ", ".join(
        f"{share.host} ({f'rank {ranks[0]}' if len(ranks) == 1 else f'ranks {ranks[0]}-{ranks[-1]}'})"
        for share, ranks in numbered(record.shares)
    )


def _verified(job: JobView) -> list[tuple[str, str]]:
    """Return whether the job runs as planned, where that was looked at."""
    found = job.record.verified
    if found is None:
        return []
    return [("VERIFIED", f"{found.status}: {found.why}"), *([("TO DO", found.next)] if found.next else [])]


def below(job: JobView, now: float) -> tuple[str, ...]:
    """Return what stands below a job's table: what it waits for, what its ranks did, its TensorBoard."""
    return _waiting(job, now), _hang(job, now), hint_lines("HINTS:", job.usage), _last_lines(job), _board(job)


def _board(job: JobView) -> str:
    """Return where the job's TensorBoard answers, and how it is opened here."""
    board = job.tensorboard
    if board is None:
        return ""
    if board.port is None:
        return f"TensorBoard: {one_line(board.problem)}"
    head = job.spec.head or job.spec.hosts[0].name
    lines = (
        f"TensorBoard: http://127.0.0.1:{board.port} on {head}",
        with_inventory_option(f"open it here: taco-launch tensorboard {job.spec.name}"),
    )
    return "\n".join(printable(line) for line in lines)


def job_data(job: JobView) -> dict[str, Any]:
    """Return a job as JSON values: the MPI Operator's shape and, beside and within that, all that is known of it here."""
    shape = mpi_job(job.spec, job.record)
    board = None if job.tensorboard is None else to_json(job.tensorboard)
    ours = {
        "name": job.spec.name,
        **to_json(job.record),
        "folder": job.folder,
        "tensorboard": board,
        "last_line": job.last_line,
        "slurm_job": job.slurm_job,
    }
    values = {**shape, **ours, "spec": {**shape["spec"], **to_json(job.spec)}}
    values |= {"progress": None if job.progress is None else to_json(job.progress)}
    values |= {"usage": {host: to_json(usage) for host, usage in job.usage}, "hints": list(hints(job.usage))}
    values |= {"last_run": None if job.last_run is None else to_json(job.last_run)}
    values |= {"time_spent": time_spent(job.record, job.events, time.time(), job.first_step)}
    return {**values, "events": to_json(job.events)} if job.events else values


def _what(job: JobView, row: JobRow) -> list[tuple[str, str]]:
    begun, ended = job.record.first_start, job.record.ended
    return [
        ("COMMAND", shell(job.spec.command)),
        ("LAUNCHER", job.spec.launcher),
        ("RANKS", str(row.np or row.requested or "")),
        ("PRIORITY", str(row.priority) if row.priority else ""),
        ("SLURM JOB", str(job.slurm_job or "")),
        ("STARTED", "" if begun is None else shown_time(begun)),
        ("ENDED", "" if ended is None else shown_time(ended)),
    ]


def _goodput(job: JobView, now: float, *, wide: bool) -> str:
    """Return how much of its time a job has trained; "" of one that has not started, and unless `wide` where that is most of it."""
    spent = goodput.time_spent(job.record, job.events, now, job.first_step)
    total = sum(spent.values())
    word = goodput.RAN if job.first_step is None else goodput.TRAINED
    trained = spent.pop(word)
    hides = total < _SHORT_JOB or trained > _MOSTLY * total
    if job.record.first_start is None or not total or (hides and not wide):
        return ""
    rest = ", ".join(f"{word} {age(seconds)}" for word, seconds in spent.items() if seconds >= 1)
    told = f"{word} {100 * trained / total:.0f} % of the {age(total)} since its submission"
    return f"{told}; {rest}" if rest else told


def _said(job: JobView, now: float) -> list[tuple[str, str]]:
    """Return what a job's output tells; of one whose first failing rank has lines of its own, these tell more."""
    progress, record = job.progress, job.record
    told = "" if progress is None else progress.text(now if record.state is JobState.RUNNING else None)
    if progress is not None and progress.rate is not None and job.last_run is not None:
        told += f"; {_compared(progress.rate, job.last_run)}"
    return [("PROGRESS", told), ("LAST LINE", "" if record.first_failure else job.last_line)]


def _compared(rate: float, last: LastRun) -> str:
    """Return how much faster or slower a job is than the one before it."""
    percent = round(100 * (rate / last.rate - 1))
    change = f"{abs(percent)} % {'slower than' if percent < 0 else 'faster than'}" if percent else "as fast as"
    return f"{change} its last run on the same hosts ({last.name})"


def why(job: JobView) -> list[tuple[str, str]]:
    """Return how a job ended, or why it waits, as rows of (label, value)."""
    record = job.record
    code = [] if record.exit_code is None else [("EXIT CODE", _exit_code(job))]
    findings = [(name.upper(), text) for name, text in job_fields(record, job.spec.name)]
    return [
        ("REASON", "\nhint: ".join(filter(None, (record.reason, record.hint)))),
        *findings,
        *code,
        ("CODE", _code(job)),
        ("ATTEMPT", _attempt(job)),
        ("EARLIER FAILURE", _earlier_failure(job)),
    ]


def _exit_code(job: JobView) -> str:
    own, other = job.record.exit_code, job.launcher_code
    return str(own) if own == other else f"{own} (`run` and `wait` exit with {other})"


def _more(job: JobView) -> list[tuple[str, str]]:
    spec, record = job.spec, job.record
    shares = () if record.state.waits else record.shares
    slots = [f"{share.host}: {', '.join(share.slots)}" for share in shares if share.slots]
    return [
        ("OWNER", spec.owner),
        ("QUEUE", spec.policy.queue),
        ("SLOTS", "; ".join(slots)),
        ("WORKDIR", spec.workdir),
        ("LINE", record.line),
        ("FOLDER", job.folder),
    ]


def _code(job: JobView) -> str:
    """Return what code a job has: where it is from, its commit, how much it is, and the id of the copy."""
    found = job.spec.code
    if found is None:
        return ""
    commit = f"commit {found.commit[:12]}{f' ({found.ref})' if found.ref else ''}" if found.commit else ""
    dirty = f"changed since then ({found.dirty})" if found.dirty else ""
    size = f"{'1 file' if found.files == 1 else f'{found.files} files'}, {size_text(found.bytes)}"
    return ", ".join(filter(None, (found.source or "config files", commit, dirty, size, f"snapshot {found.id[:12]}")))


def _choices(job: JobView) -> str:
    """Return which GPUs of its hosts the job has, how they are linked, and why these; hosts that are alike together."""
    alike: dict[GpuChoice, list[str]] = {}
    for share in () if job.record.state.waits else job.record.shares:
        if share.choice is not None:
            alike.setdefault(share.choice, []).append(share.host)
    return "\n\n".join(f"GPUS of {fold(hosts)}:\n{choice_tables.text(choice)}" for choice, hosts in alike.items())


def _attempt(job: JobView) -> str:
    """Return which attempt it is and of how many, or how that ended after which it waits; nothing of one never tried again."""
    policy, record = job.spec.policy, job.record
    if policy.restart is Restart.NEVER or not policy.backoff_limit or not record.attempt:
        return ""
    found = f"{record.attempt} of {most_attempts(policy, record)}"
    if not record.state.waits:
        return found
    failed = any(entry.attempt == record.attempt and entry.state is JobState.RESTARTING for entry in past(record))
    return f"{found} {'failed' if failed else 'suspended'}"


def _earlier_failure(job: JobView) -> str:
    """Return of which failure it is tried again, where that is not the reason of its state."""
    failed = [entry for entry in past(job.record) if entry.state is JobState.RESTARTING]
    if not failed or job.record.state is JobState.RESTARTING:
        return ""
    return f"attempt {failed[-1].attempt}: {failed[-1].reason}"


def _waiting(job: JobView, now: float) -> str:
    """Return of a job that waits per host why it has no place yet, and when it is tried again."""
    record = job.record
    if not record.state.waits:
        return ""
    words = list(record.waiting)
    if record.state is JobState.SUSPENDED:
        words = list(pending_reasons(record, job.spec.name))
    elif record.not_before is not None and (record.not_before > now or not words):
        left = record.not_before - now
        at = time.strftime("%H:%M:%S", time.localtime(record.not_before))
        words.append(("", f"attempt {record.attempt + 1} starts {f'in {age(left)}, at {at}' if left > 0 else 'now'}"))
    lines = (
        f"  {printable(f'{host}: {text}' if host else with_inventory_option(text))}"
        for host, text in words or (("", FOR_SLOTS),)
    )
    return "\n".join(("WAITING:", *lines))


def _hang(job: JobView, now: float) -> str:
    """Return that the job hangs, or hung to its end, and what its ranks' processes were seen doing."""
    record = job.record
    if record.stalled is None:
        return ""
    found = record.stalled
    at = shown_time(found.since)
    until = now if record.state is JobState.RUNNING else record.transitions[-1].time
    span = age(until - found.since)
    header = ["RANK", "NODE", "PID", "PROGRAM", "DOES", "SILENT", "LAST LINE"]
    rows = [
        [
            str(look.rank),
            look.host,
            str(look.pid or ""),
            look.program,
            doing(look),
            age(found.silent(look, until)),
            look.last_line,
        ]
        for look in found.ranks
    ]
    title = f"STALLED: {HANGS} for {span}, since {at}" if found.hung else f"WHAT EACH RANK DID AT THE TIMEOUT, {at}"
    return f"{title}\n{columns(header, rows, numbers=('RANK', 'PID', 'SILENT'))}"


def hint_lines(title: str, usages: HostUsages) -> str:
    """Return why a job uses little of its hosts, with the numbers of the last minute; "" where no rule holds."""
    lines = [f"  {printable(text)}" for text in hints(usages)]
    return "\n".join((title, *lines)) if lines else ""


def _uses(job: JobView) -> str:
    """Return what the job used in its last minute, the mean of its hosts."""
    if not job.usage:
        return ""
    names, (values,) = cells([over_hosts([usage for _host, usage in job.usage])])
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True) if value != "-")


def _last_lines(job: JobView) -> str:
    """Return what the rank that failed first wrote last, and where its log lies."""
    end = job.record.first_failure
    if end is None or not end.lines:
        return ""
    title = f"LAST LINES OF RANK {end.rank} on {printable(end.host)} ({printable(end.log)}):"
    return "\n".join((title, *(f"  {printable(line)}" for line in end.lines)))


def _conditions(job: JobView) -> str:
    rows = [
        [c["type"], c["status"], shown_time(moment(c["lastTransitionTime"])), c["reason"], one_line(c["message"])]
        for c in conditions(job.spec, job.record)
    ]
    return columns(["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"], rows) if rows else ""


def _events(job: JobView) -> str:
    rows, attempt = [], ""
    for event in job.events:
        if event.kind == PLACED:
            attempt = str(event.data.get("attempt", 1))
        rows.append([shown_time(event.time), attempt, event.kind, one_line(event.reason)])
        if event.kind in (RESTARTING, SUSPENDED):
            attempt = ""
    return columns(["TIME", "ATTEMPT", "EVENT", "REASON"], rows, numbers=("ATTEMPT",)) if rows else ""


def headed(lines: Sequence[tuple[str, str]]) -> str:
    """Return lines NAME: VALUE, without those that have no value."""
    return "\n".join(f"{name}: {printable(one_line(value))}" for name, value in lines if value)


def _in_short(row: JobRow) -> str:
    """Put the start of a reason into one line; of a job without a place, whose reason has a line per host, the first host's."""
    lines = row.reason.splitlines()
    hosts = [line for line in lines if line.startswith("  ")] if row.exit_code == CANNOT_PLACE else []
    more = [more_hosts(len(hosts) - 1)] if len(hosts) > 1 else []
    told = one_line("\n".join([*(line for line in lines if line not in hosts), *hosts[:1], *more]))
    return _cut(told)


def _cut(text: str) -> str:
    """Put a text into one line of the length that a cell has."""
    told = one_line(text)
    return told if len(told) <= _MOST_IN_CELL else f"{told[:_MOST_IN_CELL]}..."


def age_of(row: JobRow, now: float) -> str:
    """Return how long ago a job was submitted."""
    return "-" if row.submitted is None else age(now - row.submitted)


def nodes(hosts: Sequence[str], none: str = "-") -> str:
    """Name the hosts of a job, many in short; `none` where it has none."""
    return fold(hosts) if hosts else none
