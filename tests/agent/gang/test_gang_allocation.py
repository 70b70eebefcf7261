"""Gangs on two hosts that are folders of this machine, with real guards: slots are taken all or none, and shared."""

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.agent.gang.gang_allocation import GangAllocation
from taco_launch.agent.gang.guard_connection import RemoteGuardConnection
from taco_launch.agent.host.leases import Leases
from taco_launch.agent.host.slot_holders import Holder
from taco_launch.core.errors import HostError, PlacementError, UnusableError
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.job_facts import Capability, FabricFacts, JobFacts, SharedValue
from taco_launch.core.model.plans import Placement, Share
from taco_launch.core.protocol.guard_messages import HostReport
from tests.conftest import eventually
from tests.support.gangs import HOSTS, Cluster, assembled, ignore, refused
from tests.support.patience import HANG
from tests.support.threads import side_by_side


def now_or(check: Callable[[str], bool]) -> bool:
    """Return whether something holds of the time of day, which may have changed a moment ago."""
    return check(time.strftime("%H:%M")) or check(time.strftime("%H:%M", time.localtime(time.time() - 60)))


def test_jobs_share_hosts_and_the_others_are_told_who_has_what(cluster: Cluster) -> None:
    first = cluster.gang("vgg16", 3)
    assert assembled(first).shares == (Share("n1", 2, ("slot-0", "slot-1")), Share("n2", 1, ("slot-0",)))
    second = cluster.gang("b", 2)
    error = refused(second)
    assert now_or(
        lambda at: (
            error.reasons
            == (
                ("n1", f"0 of 2 free, 2 held by job vgg16 since {at}"),
                ("n2", f"1 of 2 free, 1 held by job vgg16 since {at}"),
            )
        )
    )
    assert not error.never
    third = cluster.gang("c", 1)
    assert assembled(third).shares == (Share("n2", 1, ("slot-1",)),)
    assert refused(cluster.gang("d", None)).reasons[1][1].startswith("0 of 2 free, 1 held by job vgg16 since ")
    cluster.end(first)
    # Those of the hosts that a job is no more on are let go with the job; the refusals above took nothing.
    assert assembled(cluster.gang("e", 3)).shares == (Share("n1", 2, ("slot-0", "slot-1")), Share("n2", 1, ("slot-0",)))


def test_hosts_are_reached_and_looked_at_while_the_heads_guard_begins(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang, guard = cluster.gang("a", 4), cluster.guards[0]
    told: list[str] = []

    def go_on() -> None:
        if not told and any(link.answers.probed is not None and link.answers.probed.text for link in gang.remote):
            told.extend((*(name for name, had in vars(gang.here.answers).items() if had), "n2 was looked at"))
            guard.send_signal(signal.SIGCONT)

    monkeypatch.setattr("taco_launch.agent.gang.gang_allocation.GUARD_SECONDS", 10.0)
    monkeypatch.setattr(gang, "_meanwhile", go_on)
    monkeypatch.setattr(gang, "_between", True)  # as with a profile that has words for RDMA
    guard.send_signal(signal.SIGSTOP)
    try:
        assert [share.host for share in assembled(gang).shares] == ["n1", "n2"]
    finally:
        guard.send_signal(signal.SIGCONT)
    assert told == ["n2 was looked at"]


def test_what_never_fits_is_refused_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Leases(cluster.root / "leases-n1", cluster.root / "jobs-held")
    assert held.take(("slot-0",), 1, Holder("x", "x", 0.0), None)
    monkeypatch.setattr("taco_launch.agent.gang.gang_allocation.GUARD_SECONDS", 2 * HANG)
    begin = time.monotonic()
    error = refused(cluster.gang("a", 5))
    assert error.never
    assert time.monotonic() - begin < HANG
    held.release(gone=True)


def test_hosts_that_failed_before_come_last(cluster: Cluster) -> None:
    assert assembled(cluster.gang("a", 2, ("n1",))).shares == (Share("n2", 2, ("slot-0", "slot-1")),)
    assert assembled(cluster.gang("b", 1, ("n2",))).shares == (Share("n1", 1, ("slot-0",)),)


def test_a_host_that_cannot_be_reached_is_left_out_where_the_others_suffice(cluster: Cluster) -> None:
    (cluster.root / "down-n2").touch()
    with pytest.raises(UnusableError) as caught:
        assembled(cluster.gang("a", 4))
    assert caught.value.reasons == (("n2", "ssh: n2 is down"),)
    assert assembled(cluster.gang("b", 2)).shares == (Share("n1", 2, ("slot-0", "slot-1")),)
    error = refused(cluster.gang("c", 2))
    assert [host for host, _why in error.reasons] == ["n1", "n2"]
    assert error.reasons[1][1] == "ssh: n2 is down"


def test_a_host_that_is_dialled_after_one_that_hangs_has_its_own_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = cluster.root / "bin" / "ssh"
    ssh.write_text(ssh.read_text().replace("[ !", '[ "$host" != n2 ] || exec sleep 600\n[ !', 1))

    def is_late(link: RemoteGuardConnection, _ordered: float, _seconds: float) -> bool:
        return link.name == "n2" and link.dialling

    monkeypatch.setattr(RemoteGuardConnection, "is_late", is_late)
    monkeypatch.setattr("taco_launch.agent.ssh.commands.MOST_AT_ONCE", 1)
    with pytest.raises(UnusableError) as caught:
        assembled(cluster.gang("a", 6, hosts=(*HOSTS, Host("n3", "10.0.0.3", slots=2))))
    assert caught.value.reasons == (("n2", "its guard did not report its host in time"),)


CUT = "ssh: connect to host n2 port 22: Connection timed out"


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (f'echo "{CUT}" >&2; exit 255', f"cut off while the job started: nothing heard for 0 s; {CUT}"),
        ("exec sleep 600", "its guard did not report its host in time"),
        *(
            pytest.param(second, "its guard did not report its host in time", marks=pytest.mark.nightly)
            for second in (
                "echo banner exchange timed out >&2; exit 255",
                f'echo "{CUT.replace("timed out", "refused")}" >&2; exit 255',
                "exit 0",
            )
        ),
    ],
    ids=["cut-off", "slow-to-connect", "busy", "no-sshd", "slow"],
)
def test_only_a_host_that_is_cut_off_is_given_up_soon(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, second: str, why: str
) -> None:
    """The first ssh of n2 hangs in all cases, as after its login; a second one tells which of them no packet reaches."""
    ssh = cluster.root / "bin" / "ssh"
    hangs = f'[ "$host" != n2 ] || {{ [ "$last" != true ] || {{ {second}; }}; exec sleep 600; }}\n[ !'
    ssh.write_text(ssh.read_text().replace("[ !", hangs, 1))
    monkeypatch.setattr("taco_launch.agent.gang.guard_pool.QUIET_SECONDS", 0.1)
    monkeypatch.setattr("taco_launch.agent.gang.gang_allocation.GUARD_SECONDS", HANG if "cut" in why else 2.0)
    gang = cluster.gang("a", 4)
    waits = []
    gang._meanwhile = lambda: waits.append(gang.waits)
    with pytest.raises(UnusableError) as caught:
        assembled(gang)
    ((host, told),) = caught.value.reasons
    assert (host, told.replace("for 1 s", "for 0 s")) == ("n2", why)  # how long is looked at twice a second
    assert (("n2", "no answer for 0.1 s while the job starts; it is asked by a second ssh"),) in waits


def test_a_host_whose_rdma_port_is_down_is_left_for_another(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown, cannot = SharedValue(None, ""), Capability(None, "")
    down = FabricFacts(
        unknown, unknown, cannot, cannot, unknown, unknown, unknown, down_ports=(("n2", "mlx5_1:1", "DOWN"),)
    )

    def known(_gang: GangAllocation, facts: JobFacts, hosts: list[Host], _note: object) -> JobFacts:
        return replace(facts, between=down if {"n1", "n2"} <= {host.name for host in hosts} else None)

    monkeypatch.setattr(GangAllocation, "_known", known)
    hosts = tuple(replace(host, gate=True) for host in (*HOSTS, Host("n3", "10.0.0.3", slots=2)))
    gang = cluster.gang("a", 4, hosts=hosts)
    assert [share.host for share in assembled(gang).shares] == ["n1", "n3"]
    cluster.end(gang)
    with pytest.raises(UnusableError) as caught:
        assembled(cluster.gang("b", 4, hosts=hosts[:2]))
    ((name, why),) = caught.value.reasons
    assert name == "n2"
    assert why.startswith("kept back by a check: RDMA ports: mlx5_1:1 is DOWN, and ACTIVE on other hosts of the job (")
    assert assembled(cluster.gang("c", 2, hosts=hosts[1:2])).shares[0].slots == ("slot-0", "slot-1"), "they are let go"


def test_a_job_is_on_the_fewest_leaves(cluster: Cluster) -> None:
    one, two = (replace(host, slots=2, labels=(("leaf", leaf),)) for host, leaf in zip(HOSTS, "ab", strict=True))
    held = Leases(cluster.root / "leases-n1", cluster.root / "jobs-held")
    assert held.take(("slot-0",), 1, Holder("x", "x", 0.0), None)
    placement = assembled(cluster.gang("a", 2, hosts=(one, two)))
    assert [share.host for share in placement.shares] == ["n2"]
    assert placement.why.endswith("; on 1 leaf: b")
    held.release(gone=True)


def test_what_was_taken_is_let_go_before_the_pause(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another takes a slot of the second host between the look and the lease, and lets it go while the gang pauses."""
    gang = cluster.gang("a", 4)
    thief, passer = (
        Leases(cluster.root / "leases-n2", cluster.root / "jobs-held"),
        Leases(cluster.root / "leases-n1", cluster.root / "jobs-held"),
    )
    placed, paused = gang._placed, gang._pause
    looks: list[Placement | None] = []

    def late(note: Any) -> Placement | None:
        found = placed(note)
        if not looks:
            assert thief.take(("slot-1",), 1, Holder("t", "t", 0.0), None)
        looks.append(found)
        return found

    def pause(note: Any) -> None:
        holder = Holder("p", "p", 0.0)
        eventually(lambda: passer.take(("slot-0", "slot-1"), 2, holder, None), 5, "the first host to be let go")
        for each in (thief, passer):
            each.release(gone=True)
        paused(note)

    monkeypatch.setattr(gang, "_placed", late)
    monkeypatch.setattr(gang, "_pause", pause)
    assert assembled(gang).np == 4
    assert len(looks) == 2


def test_a_job_may_take_any_of_a_hosts_slots(cluster: Cluster) -> None:
    """As many as -H says, of all that the host has."""
    hosts = (Host("n1", "10.0.0.1", slots=1, has=2),)
    assert assembled(cluster.gang("a", 1, hosts=hosts)).shares == (Share("n1", 1, ("slot-0",)),)
    assert assembled(cluster.gang("b", 1, hosts=hosts)).shares == (Share("n1", 1, ("slot-1",)),)
    assert refused(cluster.gang("c", 2, hosts=hosts)).never
    error = refused(cluster.gang("d", 1, hosts=hosts))
    assert error.reasons[0][1].startswith("0 of 1 free, 1 held by job a since ")


def test_jobs_of_one_host_have_ports_of_their_own(cluster: Cluster) -> None:
    hosts = (Host("n1", "10.0.0.1", slots=1, has=2), Host("n2", "10.0.0.2", slots=1, has=2))
    network = Network(port_range=(40000, 40031))
    found: list[int] = []
    for name in "ac":  # they start to look at the same port
        _placement, known = cluster.gang(name, 2, hosts=hosts, network=network).allocate(JobFacts(root=True), ignore)
        assert len(known.daemon_ports) == 2
        found += known.daemon_ports
    assert sorted(found) == [40000, 40001, 40002, 40003]
    more = tuple(replace(host, has=3) for host in hosts)
    assert "no port is left for mpirun" in refused(cluster.gang("d", 1, hosts=more[1:], network=network)).message
    assert "no port is left for mpirun" in refused(cluster.gang("e", 2, hosts=more, network=network)).message


def test_jobs_that_start_together_meet_at_ports_of_their_own(cluster: Cluster) -> None:
    """Of a range of two, though nobody listens there yet; the third is told which job has the one it has to have."""
    hosts = (Host("n1", "127.0.0.1", slots=1, has=3), Host("n2", "127.0.0.1", slots=1, has=3))
    network = Network(port_range=(41000, 41001))
    for launcher in ("env", "torchrun"):
        assert assembled(cluster.gang(launcher, 2, hosts=hosts, network=network, launcher=launcher)).np == 2
    assert sorted(gang.port for gang in cluster.gangs) == [41000, 41001]
    with pytest.raises(UnusableError, match="n1 cannot be used: no port from 41000 to 41001 is free on "):
        assembled(cluster.gang("c", 2, hosts=hosts, network=network, launcher="env"))
    given = (("MASTER_PORT", str(cluster.gangs[0].port)),)
    error = refused(cluster.gang("d", 2, hosts=hosts, launcher="env", env=given))
    assert (
        error.reasons[0][1]
        == f"port {given[0][1]}, which the processes of the job use for rendezvous, is in use there by job env"
    )


def test_a_host_from_where_the_rendezvous_is_not_reached(cluster: Cluster) -> None:
    hosts = (Host("n1", "255.255.255.255", slots=1), Host("n2", "127.0.0.1", slots=1))
    with pytest.raises(UnusableError) as caught:
        assembled(cluster.gang("a", 2, hosts=hosts, launcher="torchrun"))
    (host, why), where = caught.value.reasons[0], "n1 (255.255.255.255), which the ranks use for rendezvous"
    assert host == "n2"
    assert why == f"this host cannot reach port {cluster.gangs[0].port} of {where}: Network is unreachable"
    assert assembled(cluster.gang("b", 1, hosts=hosts, launcher="torchrun")).np == 1  # all was let go
    assert assembled(cluster.gang("c", 2, hosts=(replace(hosts[0], slots=2), hosts[1]))).np == 2


def test_a_host_by_two_names_is_leased_once(cluster: Cluster) -> None:
    """mpirun takes it once; what makes its line says so, and what to type."""
    hosts = (HOSTS[0], Host("me", "127.0.0.1", slots=1, connection="local"))
    expected = (Share("n1", 2, ("slot-0", "slot-1")), Share("me", 1))
    assert assembled(cluster.gang("a", 3, hosts=hosts)).shares == expected


def test_of_two_that_want_all_one_gets_it(cluster: Cluster) -> None:
    gangs = [cluster.gang(name, 4) for name in "ab"]
    found: list[object] = []

    def run(gang: GangAllocation) -> None:
        try:
            found.append(assembled(gang).np)
        except PlacementError as error:
            found.append(error)

    side_by_side(run, ((gang,) for gang in gangs))
    assert len([each for each in found if each == 4]) == 1
    (error,) = [each for each in found if isinstance(each, PlacementError)]
    assert "2 held by job " in error.message


def test_the_heads_guard_is_killed_as_it_begins(cluster: Cluster) -> None:
    gang = cluster.gang("a", 1)
    cluster.guards[0].kill()
    with pytest.raises(
        HostError, match=r"the job's guard process on n1 ended while the job started; its log is .*debug\.log"
    ):
        assembled(gang)


def test_the_heads_guard_is_killed_before_it_takes_slots(cluster: Cluster) -> None:
    gang = cluster.gang("a", 1)

    def kill(_link: object, message: object) -> None:
        if isinstance(message, HostReport):
            cluster.guards[0].kill()
            cluster.guards[0].wait()

    with pytest.raises(HostError, match="the job's guard process on n1 ended while the job started"):
        gang.allocate(JobFacts(root=True), kill)
