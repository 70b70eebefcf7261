"""Set hosts up: look at all of them, plan, apply stage by stage on all side by side, look again, prove."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from taco_launch.agent.store.folders import state_folder
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, TacoLaunchError, UsageError
from taco_launch.core.facts import MADE
from taco_launch.core.facts import SUBJECTS as ALL_SUBJECTS
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import was_requested
from taco_launch.core.model.host.facts import HostFacts, SetupState
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.jobs import Profile
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.gather_facts import gather, with_declared_values
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.apply import image_source, registry, send_image, sources
from taco_launch.setup.apply.host_ops import Changes, SetupEvent, SetupLog, apply
from taco_launch.setup.apply.plan_context import SharedReadings
from taco_launch.setup.files.ssh_files import parse_known_hosts, public_key
from taco_launch.setup.model.ops import Op, PlanContext, ProofFailure, Stage, StageRun
from taco_launch.setup.plan.diff import diffs, wanted
from taco_launch.setup.plan.host_plan import HostPlan, plan_host
from taco_launch.setup.plan.stage_rules import RULES, STAGES
from taco_launch.setup.proofs.container_network import verify
from taco_launch.setup.proofs.gpu_proof import same_gpus

# What every host is asked for: what the plan of any stage reads.
SUBJECTS = tuple(name for name in (*ALL_SUBJECTS, MADE) if any(name in stage.facts for stage in RULES.values()))
# A stage continues while what it did lets it do more: a key that is made is then copied.
_ROUNDS = 4


@dataclass(frozen=True)
class SetupRequest:
    """What the user asks for: stages, what may be disrupted; and `profile`, whose options the proof's mpirun has.

    With `pull` all hosts get what the registry has under the image's tag now; without it, what exists stays.
    `registry_password` is the one of the environment, for an inventory that names no file with it.
    """

    profile: Profile
    stages: tuple[Stage, ...] = STAGES
    disrupt: Literal["nothing", "docker", "host"] = "nothing"
    pull: bool = False
    registry_password: str | None = field(default=None, repr=False)
    # Whether the head makes the cluster's SSH key anew; then every host of the inventory has to get it.
    rotate_keys: bool = False


@dataclass(frozen=True)
class HostResult:
    """How a host ended: `changes` operations were done there; `error` says why it is not ready."""

    host: str
    changes: int
    error: TacoLaunchError | None = None


@dataclass(frozen=True)
class SetupResult:
    """How it all ended: every host, what the proof found (empty: nothing is wrong), and the logs' folder, if any."""

    hosts: tuple[HostResult, ...]
    found: tuple[ProofFailure, ...]
    logs: str


class NotConvergedError(HostError):
    """All was done, and a second plan for the host still is not empty."""


class Setup:
    """One call of set-up: its connections, what is known of the hosts, and which of them have failed."""

    def __init__(
        self,
        inventory: Inventory,
        chosen: Sequence[Host],
        fanout: Fanout,
        ask: SetupRequest,
        report: Callable[[SetupEvent], None] = lambda _step: None,
        proof: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """Set up `chosen`; `fanout` reaches all hosts of the inventory, as each has to know of the others.

        `report` is called as things happen, one call at a time; `proof` with what is being proved at the end.

        Raises:
            UsageError: the inventory has no container, a file that it names cannot be read, or a stage does not exist.
        """
        if unknown := [name for name in ask.stages if name not in RULES]:
            raise UsageError(f"unknown stage {unknown[0]!r}; stages: {', '.join(RULES)}")
        if inventory.container is None and not all(RULES[name].optional for name in ask.stages):
            raise UsageError(
                f"{inventory.source}: the inventory names no container, so jobs run directly on the hosts: nothing to set up",
                hint="name an image: container: {image: ...}; a hostfile cannot hold one, so make an inventory of its hosts: "
                "taco-launch init HOST1 HOST2 --image IMAGE --to hosts.yaml",
            )
        if ask.pull:
            left_out = [name for name, stage in RULES.items() if stage.pulls and name not in ask.stages]
            registry.may_pull(inventory, chosen, left_out)
        has_key = any(RULES[name].has_key for name in ask.stages)
        if ask.rotate_keys and (not has_key or len(chosen) < len(inventory.hosts)):
            raise UsageError("--rotate-keys changes all hosts: omit -H and --exclude, and an --only without ssh_mesh")
        self._inventory = inventory
        self._chosen = {host.name: host for host in chosen}
        self._turn = tuple(self._chosen)
        self._fanout = fanout
        self._ask = ask
        self._proof = proof
        self._facts: dict[str, HostFacts] = {}
        self._changes = Changes(report)
        secret = sources.password(inventory, ask.registry_password)
        docker_key = sources.signing_key("docker", inventory.docker.key)
        toolkit_key = sources.signing_key("toolkit", inventory.toolkit.key)
        self._typed = shell(("taco-launch", "-i", inventory.source))
        self._cluster = PlanContext(
            inventory, {}, ask.disrupt, password=secret, docker_key=docker_key, toolkit_key=toolkit_key
        )
        head_files = [path for name in ask.stages for path in RULES[name].head_files]
        self._shared = SharedReadings(inventory, self._chosen, head_files)
        self._plans: tuple[HostPlan, ...] = ()
        self.failed: dict[str, TacoLaunchError] = {}

    def only(self, hosts: Collection[str]) -> None:
        """From now on ask, plan and change these of the chosen hosts alone; what is known of the others stays."""
        self._turn = tuple(name for name in self._chosen if name in hosts)

    @property
    def chosen_failed(self) -> bool:
        """Whether a host that is to be set up has failed; the others are only asked about themselves."""
        return any(name in self.failed for name in self._chosen)

    @property
    def facts(self) -> tuple[HostFacts, ...]:
        """What is known of the chosen hosts that answered, in inventory order."""
        return tuple(self._facts[name] for name in self._alive())

    def refresh(self, answered: Callable[[Answer[HostFacts]], None] = lambda _answer: None) -> None:
        """Ask every host for its facts; one that does not answer in full has failed. Stages may ask others as well.

        Raises:
            UsageError: two hosts are the same machine.
            HostError: with `pull`, the registry cannot be asked; with `rotate_keys`, a host does not answer.
        """
        self._take(self._gather(self._fanout, SUBJECTS, answered))
        self._check_machines()
        self._know()
        for stage in self._ask.stages:
            self._cluster = RULES[stage].learn(self._run(self._alive()))
        if self._ask.rotate_keys:
            self._retire()

    def _retire(self) -> None:
        """Have the head replace the key that it has at first.

        Raises:
            HostError: a host did not answer.
        """
        for host, error in self.failed.items():
            raise HostError(f"--rotate-keys: {host} would continue to accept the old key: {error.message}", error.hint)
        head = self._facts[self._inventory.head].made
        if not self._cluster.retired and isinstance(head, SetupState):
            self._cluster = replace(self._cluster, retired=public_key(head.cluster_key) or "")

    @property
    def former(self) -> tuple[str, ...]:
        """The hosts that have left the inventory since the last set-up; one that was renamed is there by its key.

        None where this call replaces the cluster's key.
        """
        cluster = self._cluster
        now = {each.name for each in cluster.inventory.hosts}
        keys = {public_key(key) for _name, key in cluster.host_keys}
        before = () if self._ask.rotate_keys else parse_known_hosts(cluster.known_hosts).values()
        return tuple(each.name for each in before if each.name not in now and each.key not in keys)

    @property
    def moved(self) -> str:
        """Return that the image's tag stands for another image at the registry by now; empty where it is not known to."""
        return registry.moved(self._inventory, self._cluster.now, self._facts)

    def plan(self) -> tuple[HostPlan, ...]:
        """Plan all stages for each chosen host that answered, in inventory order, and look what stands in the way."""
        plans = tuple(self._chain(name, self._ask.stages) for name in self._alive())
        folders = [folder for stage in self._ask.stages for folder in RULES[stage].mounts(self._inventory)]
        self._plans = sources.unblocked(plans, folders, self._inventory, self._fanout, self.failed)
        return self._plans

    def replan(self) -> tuple[HostPlan, ...]:
        """Plan on what the hosts are by now."""
        if self._turn == tuple(self._chosen):
            self.refresh()
        else:  # what was learnt for all hosts stays as it is, so that all get the same image
            self._take(self._gather(self._fanout.only(self._turn), SUBJECTS))
            self._know()
        return self.plan()

    def proved(self, plans: Sequence[HostPlan], *, is_applied: bool = False) -> tuple[ProofFailure, ...]:
        """Return what the proofs of the stages find wrong on hosts where these plans change nothing of it."""
        settled = [
            each.host for each in plans if not each.problems and not any(RULES[op.stage].gives_gpus for op in each.ops)
        ]
        run = self._run(settled, is_applied=is_applied)
        proofs = dict.fromkeys(proof for stage in self._ask.stages for proof in RULES[stage].prove)
        return tuple(failure for proof in proofs for failure in proof(run))

    def diffs(self, plans: Sequence[HostPlan]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return what these plans would change in files: (host, unified diffs)."""
        needed = {each.host: wanted(each.ops) for each in plans}

        def fetch(transport: Transport) -> Mapping[str, bytes]:
            return sources.fetch(transport, needed[transport.name])

        answers = self._fanout.only([host for host, files in needed.items() if files]).each(fetch)
        for answer in answers:
            if answer.error is not None:
                self.failed[answer.host] = answer.error
        present = {answer.host: answer.value or {} for answer in answers}
        return tuple((each.host, diffs(each.ops, present.get(each.host, {}))) for each in plans)

    def apply(self) -> SetupResult:
        """Do what was planned, stage by stage on all hosts; then nothing may be left to do, and all is proved.

        A host that fails keeps no other from being set up.
        """
        self.failed |= {made.host: refused(made) for made in self._plans if made.stops("host")}
        secret = sources.secrets(self._inventory, self._cluster.password)
        log = SetupLog(state_folder(os.environ, os.geteuid()) / "setup" / self._inventory.cluster, secret)
        for stage in self._ask.stages:
            rounds = _ROUNDS
            while rounds and (did := self._stage(stage, log)) != "nothing":
                rounds -= did == "work"
        for name in self._alive():
            left = self._chain(name, self._ask.stages)
            if not left.empty:
                self.failed[name] = not_converged(left, log)
        ready = self._alive()
        found: tuple[ProofFailure, ...] = ()
        if ready and self._ask.stages == STAGES:
            found = self._verify()
        found += self.proved(tuple(HostPlan(name) for name in ready), is_applied=True)
        hosts = tuple(HostResult(name, self._changes.of(name), self.failed.get(name)) for name in self._turn)
        return SetupResult(hosts, found, str(log.folder) if log.written else "")

    def _stage(self, stage: Stage, log: SetupLog) -> Literal["nothing", "work", "wait"]:
        """Do what a stage has to do now; `wait`: another set-up was waited for on some host, which has to be planned anew."""
        work: dict[str, tuple[Op, ...]] = {}
        for name in self._alive():
            made = self._chain(name, (stage,))
            if made.problems:
                self.failed[name] = refused(made)
            elif made.ops:
                work[name] = made.ops
        if work:
            self.failed |= RULES[stage].before_apply(self._run(work))
            work = {name: ops for name, ops in work.items() if name not in self.failed}
        if not work:
            return "nothing"
        done = self._fanout.only(work).each(
            lambda transport: apply(transport, work[transport.name], log, self._changes.take, self._typed)
        )
        for answer in done:
            if answer.error is not None:
                self.failed[answer.host] = answer.error
        whole = self._fanout.only([name for name in work if name in self._alive()])
        self._take(self._gather(whole, RULES[stage].changes))
        self._know()
        return "wait" if any(answer.value is False for answer in done) else "work"

    def _run(self, hosts: Iterable[str], *, is_applied: bool = False) -> StageRun:
        """Return what a stage works with on these hosts."""
        facts = {name: self._facts[name] for name in hosts}
        fanout, inventory, cluster = self._fanout.only(facts), self._inventory, self._cluster
        return StageRun(
            cluster,
            tuple(facts),
            tuple(self._chosen),
            self._ask.pull,
            is_applied,
            image_source.image_on_controller,
            lambda seconds: registry.latest(inventory, facts, self._fanout, cluster.password, seconds),
            lambda given: send_image.copy(fanout, inventory, given, self._changes.take, self._proof),
            lambda: same_gpus(inventory, fanout, facts, self._proof),
            lambda host, command: fanout.only((host,)).transports[0].run(command),
        )

    def _gather(
        self,
        hosts: Fanout,
        subjects: Sequence[str],
        answered: Callable[[Answer[HostFacts]], None] = lambda _answer: None,
    ) -> Sequence[Answer[HostFacts]]:
        name, root = self._inventory.cluster, self._inventory.docker.data_root
        return gather(hosts, subjects, answered, sudo=True, cluster=name, data_root=root)

    def _verify(self) -> tuple[ProofFailure, ...]:
        ready = self._alive()
        inside = gather(
            self._fanout.only(ready), ("image",), sudo=True, container=paths.container(self._inventory.cluster)
        )
        for answer in inside:
            if answer.value is not None:
                self._facts[answer.host] = replace(self._facts[answer.host], image=answer.value.image)
        told = {name: self._facts[name] for name in ready}
        return verify(self._inventory, self._fanout.only(ready), told, self._proof, self._ask.profile)

    def _chain(self, name: str, stages: Collection[Stage]) -> HostPlan:
        head = self._inventory.head
        with_head = head in self._turn and head in self._facts and head not in self.failed
        if with_head != self._cluster.with_head:  # the same for all hosts, as is what is made of it once
            self._cluster = replace(self._cluster, with_head=with_head)
        return plan_host(self._chosen[name], self._facts[name], self._cluster, RULES, stages)

    def _alive(self) -> tuple[str, ...]:
        return tuple(name for name in self._turn if name in self._facts and name not in self.failed)

    def _take(self, answers: Sequence[Answer[HostFacts]]) -> None:
        for answer in answers:
            if answer.error is not None:
                self.failed[answer.host] = answer.error
            elif answer.value is not None:
                value = with_declared_values(answer.value, self._cluster.host(answer.host))
                before = self._facts.get(answer.host)
                told = {name: getattr(value, name) for name in SUBJECTS}
                fresh = {name: each for name, each in told.items() if name in _asked(value)}
                self._facts[answer.host] = value if before is None else replace(before, **fresh)

    def _check_machines(self) -> None:
        """Refuse a machine that has two names: what is set up under one would be undone under the other.

        Raises:
            UsageError: there is one.
        """
        hosts: dict[str, str] = {}
        for name, facts in self._facts.items():
            machine = facts.made.machine if isinstance(facts.made, SetupState) else None
            if isinstance(machine, str) and (other := hosts.setdefault(machine, name)) != name:
                raise UsageError(
                    f"{self._inventory.source}: {other} and {name} are the same machine: they have the same boot ID",
                    hint=f"remove {other} or {name} from the inventory",
                )

    def _know(self) -> None:
        """Fill in what the plans of one host depend on of the others."""
        facts = {host.name: self._facts[host.name] for host in self._inventory.hosts if host.name in self._facts}
        self._cluster = self._shared.known(self._cluster, self._fanout, facts, self.failed)


def _asked(facts: HostFacts) -> tuple[str, ...]:
    return tuple(name for name in SUBJECTS if was_requested(getattr(facts, name)))


def refused(made: HostPlan) -> HostError:
    """Return a plan's problems as an error."""
    message = "\n".join(f"{made.host}: {problem.message}" for problem in made.problems)
    return HostError(message, next((problem.hint for problem in made.problems if problem.hint), None))


def not_converged(left: HostPlan, log: SetupLog) -> NotConvergedError:
    """Return what a plan still holds that should be empty."""
    what = "; ".join([*(op.name for op in left.ops), *(problem.message for problem in left.problems)])
    return NotConvergedError(f"{left.host}: not converged after apply: {what}", hint=f"see {log.file(left.host)}")
