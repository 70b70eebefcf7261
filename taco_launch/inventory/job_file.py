"""A job file, or a manifest of the MPI Operator -> what it asks for, in the words of the command line."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from taco_launch.errors import Fault, SpecError
from taco_launch.frozen import dataclass
from taco_launch.inventory import asked, check, document, mpi_job, names
from taco_launch.inventory.faults import Faults, Loc
from taco_launch.inventory.job_schema import JobDocument, RunPolicy, SchedulingPolicy
from taco_launch.inventory.load import check_size
from taco_launch.inventory.schema import Section
from taco_launch.inventory.text import decode

OPTION = "-f"
_HINT = "`taco-launch submit --schema` describes every key"
_SECTIONS: dict[Loc, type[Section]] = {
    (): JobDocument,
    ("runPolicy",): RunPolicy,
    ("runPolicy", "schedulingPolicy"): SchedulingPolicy,
}
# The options of `submit` for keys, and their words for the keys' where these differ.
_TOP = {
    "name": "name",
    "np": "np",
    "hosts": "host_count",
    "slotsPerHost": "slots_per_host",
    "workers": "workers",
    "gpus": "gpus",
    "procsPerGpu": "procs_per_gpu",
    "mps": "mps",
    "gpuIds": "gpu_ids",
    "gpuModel": "gpu_models",
    "exclude": "exclude",
    "exclusive": "exclusive",
    "gpuTopology": "gputopology",
    "launcher": "launcher",
    "perHost": "per_host",
    "allowUnknownKnobs": "allow_unknown_knobs",
    "profile": "profile",
    "transport": "transport",
    "interface": "interface",
    "gdr": "gdr",
    "light": "light",
    "logMaxBytes": "log_max_bytes",
}
_POLICY = {
    "cleanPodPolicy": "clean_up",
    "ttlSecondsAfterFinished": "ttl",
    "activeDeadlineSeconds": "timeout",
    "restartPolicy": "restart",
    "backoffLimit": "backoff_limit",
    "backoffSeconds": "backoff",
    "suspend": "suspend",
    "gracePeriodSeconds": "grace",
    "stallTimeoutSeconds": "stall_timeout",
    "hostLossTimeoutSeconds": "host_loss_timeout",
}
_SCHEDULING = {"queue": "queue", "priority": "priority", "scheduleTimeoutSeconds": "queue_timeout"}
_WORDS = {
    "Running": "running",
    "All": "all",
    "None": "none",
    "Never": "never",
    "OnFailure": "on-failure",
    "ExitCode": "exit-code",
}
_VARIABLES = {"-x": "env", "--knob": "knobs", "--mca": "mca"}


@dataclass(frozen=True)
class JobFile:
    """What a file asks for.

    `options` holds the values of options of `submit` by the names that they have there; `env`, `knobs` and `mca` are
    those of -x, --knob and --mca: (name, value). `image` is the one that containers have to be of, "" for any; `notes`
    is what of a manifest is not used.
    """

    source: str
    command: tuple[str, ...]
    options: Mapping[str, Any]
    env: tuple[tuple[str, str | None], ...]
    knobs: tuple[tuple[str, str], ...]
    mca: tuple[tuple[str, str], ...]
    image: str
    notes: tuple[str, ...]


def parse(data: bytes, source: str, environ: Mapping[str, str]) -> JobFile:
    """Read the bytes of a file; `source` names it in messages, a profile's path counts from where it lies.

    `environ` is the caller's environment, out of which variables without a value are taken.

    Raises:
        SpecError: something in it is wrong: all faults, each with its place and value.
    """
    check_size(data, source, "job file")
    faults = Faults(source, _HINT, "job file")
    value = document.read(decode(data, faults), faults)
    hide_values(faults, ("env",))
    manifest = mpi_job.convert(value, faults) if isinstance(value, dict) and "kind" in value else None
    if manifest is None:
        job = check_job(value, faults, environ)
    else:
        job = check_job(manifest.document, faults, environ, manifest.place)
    faults.raise_any()
    return job_file(job, source, () if manifest is None else manifest.notes)


def hide_values(faults: Faults, under: Loc) -> None:
    """Have messages not show the values under a place: they may be secrets."""
    for loc, place in faults.places.items():
        if loc[: len(under)] == under:
            faults.places[loc] = replace(place, shown="")


def check_job(
    value: Any, faults: Faults, environ: Mapping[str, str], place: Callable[[Loc], Loc] = lambda loc: loc
) -> JobDocument:
    """Check what `document.read` gave for a job; all faults go to `faults`, with any the result is good for nothing else.

    `place` says where a value of the job stands in the file.

    Raises:
        SpecError: there is nothing to go on with.
    """
    return _Check(faults, place, environ).job(value)


def job_file(job: JobDocument, source: str, notes: tuple[str, ...] = ()) -> JobFile:
    """Give what a job that was found right asks for; a profile's path counts from where the file `source` lies."""
    options = dict(_options(job))
    if job.profile is not None and names.is_profile_path(job.profile):
        options["profile"] = str(Path(source).parent / Path(job.profile).expanduser())
    return JobFile(
        source,
        tuple(job.command or ()),
        options,
        tuple(job.env.items()),
        tuple(job.knobs.items()),
        tuple(job.mca.items()),
        job.image or "",
        notes,
    )


def _options(job: JobDocument) -> Iterator[tuple[str, Any]]:
    sections: tuple[tuple[Section, Mapping[str, str]], ...] = (
        (job, _TOP),
        (job.runPolicy, _POLICY),
        (job.runPolicy.schedulingPolicy, _SCHEDULING),
    )
    for section, keys in sections:
        for key, option in keys.items():
            value = getattr(section, key)
            if value is not None:
                yield option, _WORDS[value] if option in ("clean_up", "restart") else value
    if job.host is not None:
        yield "hosts", (job.host,)
    if job.selector is not None:
        yield "selectors", tuple(f"{label}={value}" for label, value in job.selector.items())


class _Check:
    """Finds all that is wrong with a document."""

    def __init__(self, faults: Faults, place: Callable[[Loc], Loc], environ: Mapping[str, str]) -> None:
        self._faults = faults
        self._place = place
        self._environ = environ

    def job(self, value: Any) -> JobDocument:
        job = self._shape(value)
        self._sizes(job)
        self._policy(job.runPolicy)
        self._variables(job)
        return job

    def _add(self, loc: Loc, problem: str, hint: str = "", value: str = "") -> None:
        self._faults.add(self._place(loc), problem, hint, value)

    def _shape(self, value: Any) -> JobDocument:
        """Check keys and values; what is wrong is left out, so that the rest can be looked at."""
        wrong: set[Loc] = set()
        rest = value
        while True:
            try:
                return JobDocument.model_validate(rest)
            except ValidationError as error:
                details = error.errors(include_url=False)
            before = len(wrong)
            for detail in details:
                loc = _loc(detail["loc"])
                known = tuple(_SECTIONS.get(loc[:-1], JobDocument).model_fields)
                check.note(detail, self._place(loc), self._faults, known, _hint(loc, detail["input"]))
                wrong.add(loc[:1] if loc[:1] == ("command",) else loc)
            if not isinstance(value, dict) or len(wrong) == before:
                raise self._faults.error()
            rest = check.without(value, (), wrong)

    def _sizes(self, job: JobDocument) -> None:
        others = {"hosts": job.hosts, "slotsPerHost": job.slotsPerHost}, {"workers": job.workers, "gpus": job.gpus}
        first = "" if job.np is None else "np"
        if first and (job.hosts, job.workers, job.gpus) == (None, None, None):
            return  # slotsPerHost says the most on each host then
        for keys in others:
            given = [key for key, count in keys.items() if count is not None]
            for key in given if first else ():
                why = f"stands beside {first}, and each says how many ranks there are"
                self._add((key,), why, "leave one of them out")
            first = first or "".join(given[:1])

    def _policy(self, policy: RunPolicy) -> None:
        tries = bool(policy.backoffLimit)
        if policy.restartPolicy == "Never" and tries:
            self._add(("runPolicy", "backoffLimit"), "stands beside restartPolicy Never", "leave one of them out")
        elif policy.restartPolicy in (None, "Never") and not tries and policy.backoffSeconds:
            self._add(("runPolicy", "backoffSeconds"), "the job is never tried again", "add a restartPolicy")
        if policy.suspend and policy.schedulingPolicy.scheduleTimeoutSeconds == 0:
            loc = ("runPolicy", "schedulingPolicy", "scheduleTimeoutSeconds")
            self._add(loc, "stands beside suspend, and a job either waits or not", "leave one of them out")

    def _variables(self, job: JobDocument) -> None:
        """Check variables and parameters as those of -x, --knob and --mca: first each alone, then one beside another."""
        lax = bool(job.allowUnknownKnobs)
        env, knobs, mca = texts(job.env.items(), job.knobs.items(), job.mca.items())
        alone = [
            *((("env", name), ((text,), (), ())) for name, text in zip(job.env, env, strict=True)),
            *((("knobs", name), ((), (text,), ())) for name, text in zip(job.knobs, knobs, strict=True)),
            *((("mca", pair[0]), ((), (), (pair,))) for pair in mca),
        ]
        right = True
        for loc, given in alone:
            for fault in self._faults_of(*given, lax=lax):
                right = False
                self._fault(loc, fault)
        if right:
            for fault in self._faults_of(env, knobs, mca, lax=lax):
                self._fault((_VARIABLES[fault.path],), fault)

    def _faults_of(
        self, env: Sequence[str], knobs: Sequence[str], mca: Sequence[tuple[str, str]], *, lax: bool
    ) -> tuple[Fault, ...]:
        try:
            asked.parse(env, knobs, mca, self._environ, allow_unknown=lax)
        except SpecError as error:
            return error.faults
        return ()

    def _fault(self, loc: Loc, fault: Fault) -> None:
        hint = fault.hint.replace(asked.LET_THROUGH, "allowUnknownKnobs: true lets it through")
        if fault.problem == asked.NOT_SET:
            hint = "give it a value here"
        self._add(loc, fault.problem, hint, fault.value)


def texts(
    env: Iterable[tuple[str, str | None]], knobs: Iterable[tuple[str, str]], mca: Iterable[tuple[str, str]]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Give (name, value) of variables, knobs and MCA parameters as -x, --knob and --mca take them."""
    return (
        tuple(name if value is None else f"{name}={value}" for name, value in env),
        tuple(f"{name}={value}" for name, value in knobs),
        tuple(mca),
    )


def _hint(loc: Loc, value: Any) -> str:
    """Say how a key is written that has been mistaken for another, or a value for a number."""
    if loc == ("hosts",) and isinstance(value, (str, tuple, dict)):
        return "names of hosts stand in host: gpu1:8,gpu2:8"
    return "write it in quotes" if loc[:1] == ("env",) and isinstance(value, (bool, document.Odd)) else ""


def _loc(steps: tuple[str | int, ...]) -> Loc:
    """Give the place in the document: without pydantic's own steps."""
    key = steps[-1:] == ("[key]",)
    loc = steps[:-1] if key else steps
    return (loc[0], *loc[2:]) if loc[:1] == ("command",) else loc
