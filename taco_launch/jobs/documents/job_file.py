"""A job file, or a manifest of Kubeflow -> the request that it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import ErrorDetails

from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import CleanUp, Restart
from taco_launch.hosts.inventory.load import check_size
from taco_launch.hosts.inventory.schema import check, document, names
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.schema.section import SchemaSection
from taco_launch.hosts.inventory.schema.text import decode
from taco_launch.hosts.inventory.variable_names import LET_THROUGH
from taco_launch.jobs.documents import manifests, other_files
from taco_launch.jobs.documents.job_schema import JobDocument, RunPolicy, SchedulingPolicy
from taco_launch.jobs.documents.job_values import NO_WHOLE_PATH
from taco_launch.jobs.request import code_options, job_fields, variables

OPTION = "-f"
_HINT = "`taco-launch submit --schema` describes every key"
_SECTIONS: dict[Loc, type[SchemaSection]] = {
    (): JobDocument,
    ("runPolicy",): RunPolicy,
    ("runPolicy", "schedulingPolicy"): SchedulingPolicy,
}
_TOP, _POLICY, _SCHEDULING = map(job_fields.of_section, (job_fields.TOP, job_fields.POLICY, job_fields.SCHEDULING))
# The operator's words for ours.
CLEAN_UP = {"Running": CleanUp.RUNNING, "All": CleanUp.ALL, "None": CleanUp.NONE}
RESTARTS = {"Never": Restart.NEVER, "OnFailure": Restart.ON_FAILURE, "ExitCode": Restart.EXIT_CODE}
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
) -> JobDocument:
    """Check what `document.read` gave for a job; all faults go to `faults`, with any the result is good for nothing else.

    `place` says where a value of the job stands in the file, `lax` whether knobs that are not known pass.

    Raises:
        SpecError: there is nothing to continue with.
    """
    return _Check(faults, place, environ, lax or _Lax()).job(value)


def request_of(job: JobDocument, source: str) -> JobRequest:
    """Return what a job that was found right asks for; a profile's path counts from where the file `source` lies."""
    sections: tuple[tuple[SchemaSection, Mapping[str, str]], ...] = (
        (job, _TOP),
        (job.runPolicy, _POLICY),
        (job.runPolicy.schedulingPolicy, _SCHEDULING),
    )
    found: dict[str, Any] = {
        field: value
        for section, keys in sections
        for key, field in keys.items()
        if (value := getattr(section, key)) is not None
    }
    if job.shmSize is not None:
        found["shm_size"] = f"{job.shmSize}b"
    if job.profile is not None and names.is_profile_path(job.profile):
        found["profile"] = str(Path(source).parent / Path(job.profile).expanduser())
    if job.sync is not None:
        found["sync"] = job.sync if job.sync.startswith(code_options.GIT) else _beside(source, job.sync)
    policy = job.runPolicy
    return JobRequest(
        command=tuple(job.command or ()),
        **found,
        selectors=tuple((job.selector or {}).items()),
        env=tuple(job.env.items()),
        knobs=tuple(job.knobs.items()),
        mca=tuple(job.mca.items()),
        config_files=tuple(_beside(source, word) for word in job.configFiles or ()),
        env_files=tuple(_beside(source, path) for path in job.envFiles or ()),
        clean_up=None if policy.cleanPodPolicy is None else CLEAN_UP[policy.cleanPodPolicy],
        restart=None if policy.restartPolicy is None else RESTARTS[policy.restartPolicy],
        source=source,
        written={each.name: each.written_key for each in job_fields.FIELDS},
    )


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

    def job(self, value: Any) -> JobDocument:
        job = self._shape(value)
        self._sizes(job)
        self._policy(job.runPolicy)
        self._variables(job)
        if job.workingDir is not None and job.sync is None and not job.workingDir.startswith("/"):
            self._add(("workingDir",), NO_WHOLE_PATH)
        return job

    def _add(self, loc: Loc, problem: str, hint: str = "", value: str = "") -> None:
        self._faults.add(self._place(loc), problem, hint, value)

    def _shape(self, value: Any) -> JobDocument:
        """Check keys and values; what is wrong is left out, so that the rest can be looked at."""

        def refused(detail: ErrorDetails, _wrong: set[Loc]) -> Loc:
            loc = _loc(detail["loc"])
            known = tuple(_SECTIONS.get(loc[:-1], JobDocument).model_fields)
            check.note(detail, self._place(loc), self._faults, known, _hint(loc, detail["input"]))
            return loc[:1] if loc[:1] == ("command",) else loc

        return check.validated(JobDocument, value, self._faults, refused)

    def _sizes(self, job: JobDocument) -> None:
        each = {"gpus": job.gpus, "slotsPerWorker": job.slotsPerWorker}
        others = {"hosts": job.hosts, "slotsPerHost": job.slotsPerHost}, {"workers": job.workers, **each}
        first = "" if job.np is None else "np"
        if first and (job.hosts, job.workers, *each.values()) == (None, None, None, None):
            return  # slotsPerHost says the most on each host then
        for keys in others:
            given = [key for key, count in keys.items() if count is not None]
            for key in given if first else ():
                why = f"and {first} both set the number of ranks"
                self._add((key,), why, "leave one of them out")
            first = first or "".join(given[:1])

    def _policy(self, policy: RunPolicy) -> None:
        tries = bool(policy.backoffLimit)
        if policy.restartPolicy == "Never" and tries:
            self._add(("runPolicy", "backoffLimit"), "conflicts with restartPolicy Never", "leave one of them out")
        elif policy.restartPolicy in (None, "Never") and not tries and policy.backoffSeconds:
            self._add(("runPolicy", "backoffSeconds"), "the job is never tried again", "add a restartPolicy")
        if policy.suspend and policy.schedulingPolicy.scheduleTimeoutSeconds == 0:
            loc = ("runPolicy", "schedulingPolicy", "scheduleTimeoutSeconds")
            self._add(loc, "conflicts with suspend: a job either waits or does not", "leave one of them out")

    def _variables(self, job: JobDocument) -> None:
        """Check variables and parameters as those of -x, --knob and --mca: first each alone, then one beside another."""
        lax = bool(job.allowUnknownKnobs) or self._lax.allowed
        env, knobs, mca = tuple(job.env.items()), tuple(job.knobs.items()), tuple(job.mca.items())
        alone = [
            *((("env", pair[0]), ((pair,), (), ())) for pair in env),
            *((("knobs", pair[0]), ((), (pair,), ())) for pair in knobs),
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
        self,
        env: Sequence[tuple[str, str | None]],
        knobs: Sequence[tuple[str, str]],
        mca: Sequence[tuple[str, str]],
        *,
        lax: bool,
    ) -> tuple[Fault, ...]:
        try:
            variables.check(env, knobs, mca, self._environ, allow_unknown=lax)
        except SpecError as error:
            return error.faults
        return ()

    def _fault(self, loc: Loc, fault: Fault) -> None:
        hint = fault.hint.replace(LET_THROUGH, self._lax.hint)
        if fault.problem == variables.NOT_SET:
            hint = "give it a value here"
        self._add(loc, fault.problem, hint, fault.value)


def _hint(loc: Loc, value: Any) -> str:
    """Return how a key is written that has been mistaken for another, or a value for a number."""
    if loc == ("hosts",) and isinstance(value, (str, tuple, dict)):
        return "write host names in the key host, for example host: gpu1:8,gpu2:8"
    return "write it in quotes" if loc[:1] == ("env",) and isinstance(value, (bool, document.OddValue)) else ""


def _loc(steps: tuple[str | int, ...]) -> Loc:
    """Return the place in the document: without pydantic's own steps."""
    key = steps[-1:] == ("[key]",)
    loc = steps[:-1] if key else steps
    return (loc[0], *loc[2:]) if loc[:1] == ("command",) else loc
