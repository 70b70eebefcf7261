"""Set-up on simulated hosts: real shells and files below one folder per host, simulated stages and facts."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taco_launch.api import setup as api_setup
from taco_launch.cli.hosts import teardown as cli_teardown
from taco_launch.cli.main import cli
from taco_launch.cli.options.common import Settings
from taco_launch.core.command import Command
from taco_launch.core.errors import HostError
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent
from taco_launch.core.model.host.facts import HostFacts, SetupFile, SetupState
from taco_launch.core.model.host.hosts import Host
from taco_launch.hosts.fanout import Answer, Fanout
from taco_launch.hosts.remote import agent_bundle
from taco_launch.hosts.remote.local import LocalTransport
from taco_launch.setup.apply import setup_run as flow
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem, ProofFailure, Stage, StagePlanner
from taco_launch.setup.plan import batch
from taco_launch.setup.plan.stage_rules import RULES
from tests.support.host_facts import host as facts_of

PASSWORD = "s3cret-w0rd"


INVENTORY = """\
cluster: c
container: {image: "registry/train:1", registry: {user: me}}
hosts: {gpu1: {}, gpu2: {}, gpu3: {}}
"""


class Simulated(LocalTransport):
    """A host that is a folder of this machine: commands run as this user, without sudo."""

    def run(self, command: Command) -> Any:
        return super().run(replace(command, sudo=False))

    def tail(self, command: Command) -> Any:
        return super().tail(replace(command, sudo=False))


@dataclass
class World:
    """Hosts as folders. What a stage wants is a file of its name in the host's folder, with the stage's name in it."""

    folder: Path
    broken: dict[str, HostError] = field(default_factory=dict)
    refused: dict[tuple[str, str], Problem] = field(default_factory=dict)
    scripts: dict[tuple[str, str], str] = field(default_factory=dict)
    flaws: tuple[ProofFailure, ...] = ()
    like: dict[str, Callable[..., HostFacts]] = field(default_factory=dict)
    looks: list[tuple[str, ...]] = field(default_factory=list)
    clusters: list[PlanContext] = field(default_factory=list)

    def of(self, host: str) -> Path:
        return self.folder / host

    def gather(self, hosts: Fanout, subjects: Sequence[str], report: Any = None, **_more: Any) -> Any:
        self.looks.append(tuple(subjects))
        answers = tuple(self._answer(each.name) for each in hosts.transports)
        for answer in answers:
            if report is not None:
                report(answer)
        return answers

    def _answer(self, name: str) -> Answer[HostFacts]:
        if name in self.broken:
            return Answer(name, error=self.broken[name])
        files = [
            SetupFile(str(path), hashlib.sha256(path.read_bytes()).hexdigest(), 0o644)
            for path in sorted(self.of(name).rglob("*"))
            if path.is_file()
        ]
        made = SetupState(tuple(files), (), (), None, Absent(), Absent(), *[Absent()] * 7)
        like: Callable[..., HostFacts] = self.like.get(name, facts_of)
        return Answer(name, like(name, made=made))

    def plan(self, stage: Stage) -> StagePlanner:
        def plan(host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
            self.clusters.append(cluster)
            if (host.name, stage) in self.refused:
                yield self.refused[host.name, stage]
                return
            assert isinstance(facts.made, SetupState)
            assert isinstance(facts.made.files, tuple)
            path = self.of(host.name) / stage
            if any(file.path == str(path) for file in facts.made.files):
                return
            file = FileTarget(str(path), f"{stage}\n".encode(), secret=stage == "ssh_mesh")
            script = self.scripts.get((host.name, stage), "")
            yield Op(stage, f"put {stage}", "it does not exist", script, files=(file,), expect=_with(file))

        return plan


def _with(file: FileTarget) -> Callable[[HostFacts], HostFacts]:
    def expect(facts: HostFacts) -> HostFacts:
        assert isinstance(facts.made, SetupState)
        assert isinstance(facts.made.files, tuple)
        return replace(facts, made=replace(facts.made, files=(*facts.made.files, SetupFile(file.path, "", 0o644))))

    return expect


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path / "hosts")
    for name in ("gpu1", "gpu2", "gpu3"):
        made.of(name).mkdir(parents=True)
    monkeypatch.setattr(flow, "gather", made.gather)
    rules = {stage: replace(RULES[stage], plan=made.plan(stage)) for stage in RULES}
    monkeypatch.setattr(flow, "RULES", rules)
    monkeypatch.setattr(flow, "verify", lambda *_args: made.flaws)
    monkeypatch.setattr(flow, "same_gpus", lambda *_args: ())
    monkeypatch.setattr(agent_bundle, "build", lambda _sources: b"packed")  # for real it takes 0.2 s
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for caller in (api_setup, cli_teardown):
        monkeypatch.setattr(
            caller, "connect", lambda _inventory, hosts, _access: Fanout(tuple(Simulated(host.name) for host in hosts))
        )
    head = batch._HEAD.replace("exec 9>/run/taco-launch/", f'exec 9>{tmp_path}/"$1"')
    monkeypatch.setattr(batch, "_HEAD", head.replace(paths.RUN, f"{tmp_path}/run").replace("setup.out", "$1.out"))
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    (tmp_path / "cluster.yaml").write_text(INVENTORY)
    return made


def setup(world: World, *words: str, password: str | None = PASSWORD, command: str = "setup", **more: Any) -> Result:
    argv = ("-i", str(world.folder.parent / "cluster.yaml"), command, *words)
    settings = Settings(registry_password=password)  # of the environment
    return CliRunner().invoke(cli, argv, standalone_mode=False, obj=settings, **more)


def code(result: Result) -> int:
    """Return the exit code that the program would end with."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return int(getattr(result.exception, "exit_code", 99))
    return int(result.return_value or 0)


def rows(result: Result) -> dict[str, list[str]]:
    found = [line.split() for line in result.stdout.splitlines()]
    return {words[0]: words[1:] for words in found if len(words) == 3 and words[0].startswith("gpu")}
