"""A job file, or a manifest of Kubeflow -> the request that it is."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import ErrorDetails

from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory.load import check_size
from taco_launch.hosts.inventory.schema import check, document, names
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.schema.section import SchemaSection
from taco_launch.hosts.inventory.schema.text import decode
from taco_launch.hosts.inventory.variable_names import LET_THROUGH
from taco_launch.jobs.documents import manifests, other_files
from taco_launch.jobs.documents.job_schema import CommandSection, JobDocument, RunPolicy, SchedulingPolicy
from taco_launch.jobs.documents.job_values import NO_WHOLE_PATH
from taco_launch.jobs.request import code_options, job_fields, variables
from taco_launch.jobs.request.job_fields import JobField

OPTION = "-f"
_HINT = "`taco-launch submit --schema` describes every key"
_SECTIONS: dict[Loc, type[SchemaSection]] = {
    (): JobDocument,
    ("runPolicy",): RunPolicy,
    ("runPolicy", "schedulingPolicy"): SchedulingPolicy,
}
# Keys as other launchers and schedulers call them: the field, or the key itself of what is no field.
_MEANT = {
    **dict.fromkeys(
        ("ranks", "processes", "numProcesses", "num_processes", "nproc", "ntasks", "world_size", "size"), "np"
    ),
    **dict.fromkeys(("script", "cmd", "program", "entrypoint", "run", "args"), "command"),
    **dict.fromkeys(("nodes", "num_nodes", "nnodes", "numNodes"), "hosts"),
    **dict.fromkeys(("hostlist", "nodelist", "machines"), "host"),
    **dict.fromkeys(
        ("nproc_per_node", "nprocPerNode", "ranksPerHost", "ppn", "gpusPerNode", "gpus_per_node"), "slots_per_host"
    ),
    **dict.fromkeys(("environment", "envs", "envVars", "variables"), "env"),
    **dict.fromkeys(("retries", "maxRetries", "max_retries", "restarts"), "backoff_limit"),
    **dict.fromkeys(("timeout", "walltime", "timeLimit", "time_limit", "maxTime"), "timeout"),
    **dict.fromkeys(("cwd", "workingDirectory", "folder", "directory"), "workdir"),
    **dict.fromkeys(("container", "dockerImage"), "image"),
    **dict.fromkeys(("partition",), "queue"),
}
# Fields by what their options are called, and by their keys in whatever section.
_FIELDS = {
    **{form.lstrip("-"): each.name for each in job_fields.FIELDS if each.section is not None for form in each.options},
    **{each.written_key: each.name for each in job_fields.FIELDS if each.section is not None},
}
_VARIABLES = {"-x": "env", "--knob": "knobs", "--mca": "mca"}


class JobFile(NamedTuple):
    """What a file asks for, and in `notes` what of a manifest is not used.

    Without a container the image of a manifest is not used either: see `without_container`.
    """

    request: JobRequest
    notes: tuple[str, ...]
    kind: str = ""  # of a manifest

    @property
    def is_manifest(self) -> bool:
        """Return whether it is an object of Kubernetes."""
        return bool(self.kind)


class _Lax(NamedTuple):
    """Whether unknown knobs pass, and how one says that they are to."""

    allowed: bool = False
    hint: str = "allowUnknownKnobs: true accepts it"


def parse(data: bytes, source: str, environ: Mapping[str, str], *, allow_unknown: bool = False) -> JobFile:
    """Read the bytes of a file; `source` names it in messages, a profile's path counts from where it lies.

    `environ` is the caller's environment, out of which variables without a value are taken. `allow_unknown` lets knobs
    pass that no known library has, as the file's own key does.

    Raises:
        UsageError: it is a file of another kind.
        SpecError: something in it is wrong: all faults, each with its place and value.
    """
    check_size(data, source, "job file")
    faults = Faults(source, _HINT, "job file")
    text = decode(data, faults)
    other_files.refuse(text, source)
    value, others = manifests.read(text, faults)
    if isinstance(value, dict) and "kind" in value and not manifests.is_read(value):
        places, faults = faults.places, Faults(source, manifests.LINE, "job file")
        faults.places = places
    other_files.refuse_document(value, source)
    hide_values(faults, ("env",))
    manifest = manifests.convert(value, faults) if isinstance(value, dict) and "kind" in value else None
    if manifest is None:
        job = check_job(value, faults, environ, lax=_Lax(allow_unknown))
    else:  # which has no key for that
        job = check_job(manifest.document, faults, environ, manifest.place, _Lax(allow_unknown, LET_THROUGH))
    faults.raise_any()
    request = request_of(job, source)
    if manifest is None:
        return JobFile(request, ())
    return JobFile(replace(request, line_np=manifest.line_np), (*others, *manifest.notes), value["kind"])


def without_container(file: JobFile) -> JobFile:
    """Return a manifest for hosts without a container: its image is told as not used, and so are folders that stay where they are."""
    if not file.is_manifest or file.request.image is None:
        return file
    kept = tuple(text for text in file.request.data if len(set(text.split(":")[:2])) > 1)
    note = f"image {file.request.image}: without a container the job runs on the host itself"
    return file._replace(request=replace(file.request, image=None, data=kept), notes=(*file.notes, note))


def hide_values(faults: Faults, under: Loc) -> None:
    """Have messages not show the values under a place: they may be secrets."""
    for loc, place in faults.places.items():
        if loc[: len(under)] == under:
            faults.places[loc] = replace(place, shown="")


def check_job(
    value: Any,
    faults: Faults,
    environ: Mapping[str, str],
    place: Callable[[Loc], Loc] = lambda loc: loc,
    lax: _Lax | None = None,
) -> CommandSection:
    """Check what `document.read` gave for a job; all faults go to `faults`, with any the result is good for nothing else.

    `place` says where a value of the job stands in the file, `lax` whether knobs that are not known pass.

    Raises:
        SpecError: there is nothing to continue with.
    """
    return _Check(faults, place, environ, lax or _Lax()).job(value)


def request_of(job: CommandSection, source: str) -> JobRequest:
    """Return what a job that was found right asks for; a relative path counts from where the file `source` lies."""
    given = {
        field.name: _READERS[field.kind](field, value, source) if field.kind in _READERS else value
        for field in job_fields.FIELDS
        if (value := _value(job, field.name)) is not None
    }
    return JobRequest(command=tuple(job.command or ()), **given, source=source, written=job_fields.KEYS)


def _key(name: str) -> str:
    """Return where the key of a field stands in a file; a name that is no field's is the key."""
    field = job_fields.BY_NAME.get(name)
    return name if field is None else ".".join((*(field.section or ()), field.written_key))


def _value(job: CommandSection, name: str) -> Any:
    """Return what a file gives for a field; None where it gives nothing."""
    field = job_fields.BY_NAME[name]
    if field.section is None:
        return None
    section: Any = job
    for step in field.section:
        section = getattr(section, step)
    return getattr(section, field.written_key)


def _of_profile(_field: JobField, name: str, source: str) -> str:
    return _beside(source, name) if names.is_profile_path(name) else name


def _of_code(_field: JobField, place: str, source: str) -> str:
    return place if place.startswith(code_options.GIT) else _beside(source, place)


def _of_words(field: JobField, word: str, _source: str) -> Any:
    return next(each for each in field.words or () if job_fields.operator_word(each) == word)


# What a value of a file becomes; a kind that is not here is as it is.
_READERS: Mapping[str, Callable[[JobField, Any, str], Any]] = {
    "shared memory": lambda _field, size, _source: f"{size}b",
    "profile": _of_profile,
    "code": _of_code,
    "files": lambda _field, paths, source: tuple(_beside(source, path) for path in paths),
    "words": _of_words,
    **dict.fromkeys(
        ("labels", "variables", "knobs", "parameters"), lambda _field, pairs, _source: tuple(pairs.items())
    ),
}


def _beside(source: str, path: str) -> str:
    """Return a path that counts from where a file lies."""
    return str(Path(source).parent / Path(path).expanduser())


class _Check:
    """Finds all that is wrong with a document."""

    def __init__(self, faults: Faults, place: Callable[[Loc], Loc], environ: Mapping[str, str], lax: _Lax) -> None:
        self._faults = faults
        self._lax = lax
        self._place = place
        self._environ = environ

    def job(self, value: Any) -> CommandSection:
        job = self._shape(value)
        given = {field.name: _value(job, field.name) for field in job_fields.FIELDS}
        self._sizes(given)
        self._policy(given)
        self._variables(given)
        if given["workdir"] is not None and given["sync"] is None and not given["workdir"].startswith("/"):
            self._add("workdir", NO_WHOLE_PATH)
        return job

    def _add(self, name: str, problem: str, hint: str = "") -> None:
        """Add a fault of a field."""
        field = job_fields.BY_NAME[name]
        self._faults.add(self._place((*(field.section or ()), field.written_key)), problem, hint)

    def _shape(self, value: Any) -> CommandSection:
        """Check keys and values; what is wrong is left out, so that the rest can be looked at."""

        def refused(detail: ErrorDetails, _wrong: set[Loc]) -> Loc:
            loc = _loc(detail["loc"])
            known = tuple(_SECTIONS.get(loc[:-1], JobDocument).model_fields)
            check.note(detail, self._place(loc), self._faults, known, _hint(loc, detail["input"]))
            return loc[:1] if loc[:1] == ("command",) else loc

        return check.validated(JobDocument, value, self._faults, refused)

    def _sizes(self, given: Mapping[str, Any]) -> None:
        ways = ("hosts", "slots_per_host"), ("workers", "gpus", "slots_per_worker")
        first = "" if given["np"] is None else "np"
        if first and all(given[name] is None for name in ("hosts", *ways[1])):
            return  # slotsPerHost says the most on each host then
        for way in ways:
            present = [name for name in way if given[name] is not None]
            for name in present if first else ():
                self._add(name, f"and {job_fields.KEYS[first]} both set the number of ranks", "leave one of them out")
            first = first or "".join(present[:1])

    def _policy(self, given: Mapping[str, Any]) -> None:
        tries, restart = bool(given["backoff_limit"]), given["restart"]
        if restart == "Never" and tries:
            self._add("backoff_limit", "conflicts with restartPolicy Never", "leave one of them out")
        elif restart in (None, "Never") and not tries and given["backoff"]:
            self._add("backoff", "the job is never tried again", "add a restartPolicy")
        if given["suspend"] and given["queue_timeout"] == 0:
            problem = "conflicts with suspend: a job either waits or does not"
            self._add("queue_timeout", problem, "leave one of them out")

    def _variables(self, given: Mapping[str, Any]) -> None:
        """Check variables and parameters as those of -x, --knob and --mca: first each alone, then one beside another."""
        lax = bool(given["allow_unknown_knobs"]) or self._lax.allowed
        pairs = {name: tuple((given[name] or {}).items()) for name in _VARIABLES.values()}
        right = True
        for name, those in pairs.items():
            for pair in those:
                for fault in self._faults_of({name: (pair,)}, lax=lax):
                    right = False
                    self._fault((name, pair[0]), fault)
        if right:
            for fault in self._faults_of(pairs, lax=lax):
                self._fault((_VARIABLES[fault.path],), fault)

    def _faults_of(self, pairs: Mapping[str, tuple[Any, ...]], *, lax: bool) -> tuple[Fault, ...]:
        env, knobs, mca = (pairs.get(name, ()) for name in _VARIABLES.values())
        try:
            variables.check(env, knobs, mca, self._environ, allow_unknown=lax)
        except SpecError as error:
            return error.faults
        return ()

    def _fault(self, loc: Loc, fault: Fault) -> None:
        hint = fault.hint.replace(LET_THROUGH, self._lax.hint)
        hint = hint.replace(
            variables.OTHERS, "put any other variable under env:, and any other MCA parameter under mca:"
        )
        if fault.problem == variables.NOT_SET:
            hint = "give it a value here"
        self._faults.add(self._place(loc), fault.problem, hint, fault.value)


def _hint(loc: Loc, value: Any) -> str:
    """Return how a key is written that has been mistaken for another or has another name here, or a value for a number."""
    section = _SECTIONS.get(loc[:-1]) if loc else None
    name = str(loc[-1]) if loc else ""
    meant = _MEANT.get(name) or _FIELDS.get(name)
    if section is not None and meant and loc[-1] not in section.model_fields:
        return f"did you mean {_key(meant)!r}?"
    if loc == ("hosts",) and isinstance(value, (str, tuple, dict)):
        return "write host names in the key host, for example host: gpu1:8,gpu2:8"
    return "write it in quotes" if loc[:1] == ("env",) and isinstance(value, (bool, document.OddValue)) else ""


def _loc(steps: tuple[str | int, ...]) -> Loc:
    """Return the place in the document: without pydantic's own steps."""
    key = steps[-1:] == ("[key]",)
    loc = steps[:-1] if key else steps
    return (loc[0], *loc[2:]) if loc[:1] == ("command",) else loc
