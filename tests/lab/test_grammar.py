"""What users write, and what the lab reads back: arguments of faults, labels, numbers, addresses."""

import os
import re
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.cli.main import cli
from taco_launch.core.errors import TacoLaunchError, UsageError
from taco_launch.lab import access, faults, hardware, subnet, up
from taco_launch.lab.docker import engine, hosts
from taco_launch.lab.docker.labels import LabHost, from_labels, is_lab_name, order, to_labels

MACHINE = engine.RunningEngine("20.10.24", 1, ours=False, userns=False, containers=0)


def lab(size: int = 2, slots: int = 2, gpus: str = "none", name: str = "lab") -> tuple[LabHost, ...]:
    return up.planned(up.LabRequest(name, size, slots, gpus), IPv4Network("10.213.0.0/24"))


# --- arguments of faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "text", "words"),
    [
        ("cut", "5s", ("5",)),
        ("cut", "5", ("5",)),
        ("cut", "300ms", ("0.3",)),
        ("cut", "1.5m", ("90",)),
        ("slow-link", "100mbit", ("100000000bit", "131072")),
        ("slow-link", "64kbit", ("64000bit", "131072")),
        ("slow-link", "10gbit", ("10000000000bit", "12500000")),
        ("loss", "5", ("5",)),
        ("slow-cpu", "20", ("20",)),
        ("clock-skew", None, ("+90",)),
        ("clock-skew", "90", ("+90",)),
        ("clock-skew", "-2h", ("-7200",)),
        ("clock-skew", "+3d", ("+259200",)),
        ("partition", None, ()),
    ],
)
def test_arguments(fault: str, text: str | None, words: tuple[str, ...]) -> None:
    assert faults.arguments(faults.BY_NAME[fault], text) == words


@pytest.mark.parametrize(
    ("fault", "text", "said"),
    [
        ("cut", None, "cut needs an argument, SECONDS"),
        ("cut", "0s", "more than 0 and at most 3600 s"),
        ("cut", "2h", "more than 0 and at most 3600 s"),
        ("cut", "5 s", "is no SECONDS"),
        ("cut", "inf", "is no SECONDS"),
        ("cut", "5s; reboot", "is no SECONDS"),
        ("loss", None, "loss needs an argument, PERCENT"),
        ("loss", "0", "is no PERCENT"),
        ("slow-cpu", "100", "is no PERCENT"),
        ("slow-link", None, "slow-link needs an argument, RATE"),
        ("slow-link", "100", "is no RATE"),
        ("slow-link", "0mbit", "is no RATE"),
        ("slow-link", "100Mbps", "is no RATE"),
        ("clock-skew", "0", "is no OFFSET"),
        ("clock-skew", "+-5", "is no OFFSET"),
        ("power-off", "now", "power-off accepts no argument: 'now'"),
    ],
)
def test_arguments_that_are_none(fault: str, text: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        faults.arguments(faults.BY_NAME[fault], text)


@given(st.sampled_from(faults.FAULTS), st.text())
def test_no_argument_reaches_a_shell_as_code(fault: faults.InjectedFault, text: str) -> None:
    try:
        words = faults.arguments(fault, text)
    except UsageError:
        return
    assert all(re.fullmatch(r"[+-]?[0-9.e-]+(bit)?", word) for word in words)


def test_every_undo_is_in_the_table_and_undoes() -> None:
    for fault in faults.FAULTS:
        assert not fault.undo or not faults.BY_NAME[fault.undo].undo
        assert bool(fault.act) != bool(fault.script)
        assert not fault.seen or fault.undo
    assert len(faults.BY_NAME) == len(faults.FAULTS)


def test_help_has_the_table() -> None:
    output = CliRunner().invoke(cli, ["lab", "fault", "--help"]).output
    for fault in faults.FAULTS:
        assert f"  {fault.name} " in output


@pytest.mark.parametrize(("word", "hint"), [("poweroff", "power-off"), ("Reboot", "reboot"), ("disk-ful", "disk-full")])
def test_a_fault_that_is_none(word: str, hint: str) -> None:
    result = CliRunner().invoke(cli, ["lab", "fault", "gpu1", word])
    assert isinstance(result.exception, UsageError)
    assert f"did you mean '{hint}'?" in str(result.exception.hint)


def test_a_negative_offset_is_an_argument_not_options() -> None:
    result = CliRunner(env={"DOCKER_HOST": "ssh://host"}).invoke(cli, ["lab", "fault", "gpu1", "clock-skew", "-2h"])
    assert "DOCKER_HOST is ssh://host" in str(result.exception)  # so it was read, and no engine was asked


# --- labels -----------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        LabHost,
        lab=st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True),
        name=st.one_of(st.just("registry"), st.integers(1, 200).map(lambda number: f"gpu{number}")),
        address=st.ip_addresses(v=4).map(str),
        size=st.integers(1, 200),
        slots=st.integers(1, 64),
        gpus=st.sampled_from((*hardware.MACHINES, "none")),
        release=st.sampled_from(["", "bookworm", "trixie"]),
        docker=st.booleans(),
    )
)
def test_labels_there_and_back(host: LabHost) -> None:
    labels = dict(to_labels(host))
    assert from_labels(labels) == host
    for key in labels:
        without = from_labels({name: value for name, value in labels.items() if name != key})
        # labs of before there were releases, and engines, are still labs
        later = {
            "taco-launch.lab.release": replace(host, release=""),
            "taco-launch.lab.docker": replace(host, docker=False),
        }
        assert without == later.get(key)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_other_peoples_labels_are_no_host(labels: dict[str, str]) -> None:
    assert from_labels(labels) is None


def test_a_label_that_is_no_number() -> None:
    assert from_labels({**dict(to_labels(lab()[0])), "taco-launch.lab.slots": "two"}) is None


def test_hosts_are_in_their_order() -> None:
    backwards = tuple(reversed(lab(12)))
    names = [host.name for host in sorted(backwards, key=order)]
    assert names == [*(f"gpu{number}" for number in range(1, 13)), "registry"]


@pytest.mark.parametrize(("name", "good"), [("lab", True), ("a-1", True), ("", False), ("A", False), ("a_b", False)])
def test_names(name: str, good: bool) -> None:
    assert is_lab_name(name) is good


@pytest.mark.parametrize("name", ["-a", "a" * 32, "a/b", "a b", "ä", "a\n"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid lab name"):
        up.check(up.LabRequest(name))
    assert from_labels({**dict(to_labels(lab()[0])), "taco-launch.lab": name}) is None


@pytest.mark.parametrize("name", ["../../kept", ".."])
@pytest.mark.parametrize(
    "verb",
    [("up",), ("down",), ("down", "--images"), ("status",), ("exec", "gpu1", "true"), ("fault", "gpu1", "reboot")],
)
def test_no_verb_takes_such_a_name(tmp_path: Path, verb: tuple[str, ...], name: str) -> None:
    refused(tmp_path, ["lab", verb[0], "--name", name, *verb[1:]])


@pytest.mark.parametrize(
    "verb", [("up",), ("down",), ("status",), ("exec", "gpu1", "true"), ("fault", "gpu1", "reboot")]
)
def test_every_verb_means_the_lab_of_the_inventory(tmp_path: Path, verb: tuple[str, ...]) -> None:
    refused(tmp_path, ["-i", "lab:../../kept", "lab", *verb])


@pytest.mark.parametrize("name", ["../../kept", ".."])
def test_no_inventory_has_such_a_name(tmp_path: Path, name: str) -> None:
    refused(tmp_path, ["-i", f"lab:{name}", "inventory"])


def refused(folder: Path, words: list[str]) -> None:
    """See a name refused, where no engine answers, and that nothing around the labs' folder is touched."""
    (folder / "kept").mkdir()
    (folder / "state" / "lab").mkdir(parents=True)
    result = CliRunner(env={"TACO_LAUNCH_STATE": str(folder / "state"), "PATH": ""}).invoke(cli, words)
    assert (folder / "kept").is_dir()
    assert (folder / "state" / "lab").is_dir()
    assert isinstance(result.exception, UsageError), result.output
    assert "is not a valid lab name: use at most 31 lower-case letters, digits and '-'" in str(result.exception)


# --- what a second `lab up` asks for ----------------------------------------------------------------------------------


def test_defaults() -> None:
    assert up.settled(up.LabRequest("lab"), (), "bookworm") == up.LabRequest(
        "lab", 2, 2, "none", "bookworm", docker=False
    )


@pytest.mark.parametrize("there", [lab(4, 3, "v100x8"), lab(4, 3, "v100x8")[2:3], lab(4, 3, "v100x8")[-1:]])
def test_what_is_there_decides(there: tuple[LabHost, ...]) -> None:
    """Also of a lab that was cut short: any of its hosts says how it was to be."""
    wanted = up.LabRequest("lab", 4, 3, "v100x8", docker=False)
    assert up.settled(up.LabRequest("lab"), there, "bookworm") == replace(wanted, release="bookworm")
    assert up.settled(wanted, there, "bookworm") == replace(wanted, release="bookworm")
    newer = tuple(replace(each, release="trixie") for each in there)
    assert up.settled(wanted, newer, "bookworm") == replace(wanted, release="trixie")
    with_docker = tuple(replace(each, docker=True) for each in there)
    assert up.settled(up.LabRequest("lab", docker=True), with_docker, "bookworm").docker is True


def test_hosts_with_gpus_have_as_many_slots() -> None:
    def slots(**wanted: Any) -> int | None:
        return up.settled(up.LabRequest("lab", **wanted), (), "bookworm").slots

    assert [slots(gpus=kind) for kind in ("a100x8", "pcie4", "none", None)] == [8, 4, 2, 2]
    assert slots(gpus="a100x8", slots=2) == 2


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (up.LabRequest("lab", size=3), "--hosts 3 (it has 2)"),
        (up.LabRequest("lab", slots=8), "--slots 8 (it has 2)"),
        (up.LabRequest("lab", gpus="v100x8"), "--gpus v100x8 (it has none)"),
        (up.LabRequest("lab", release="trixie"), "--release trixie (it has bookworm)"),
        (up.LabRequest("lab", 3, 2, "v100x8"), "--hosts 3 (it has 2), --gpus v100x8 (it has none)"),
        (up.LabRequest("lab", size=2, docker=True), "--docker (it was made without)"),
    ],
)
def test_other_numbers(wanted: up.LabRequest, said: str) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"the lab 'lab' already exists with other settings: {said}")
    ) as caught:
        up.settled(wanted, lab(), "bookworm")
    assert "taco-launch lab down && taco-launch lab up --" in str(caught.value.hint)


@pytest.mark.parametrize(
    "wanted", [up.LabRequest(size=0), up.LabRequest(size=201), up.LabRequest(slots=0), up.LabRequest(slots=65)]
)
def test_numbers_that_cannot_be(wanted: up.LabRequest) -> None:
    with pytest.raises(UsageError, match=r"a lab (host )?has 1 to"):
        up.check(wanted)


# --- what a host is made of -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [(), ("SYS_RESOURCE",)])
def test_no_host_is_given_what_reaches_beyond_it(lacking: tuple[str, ...]) -> None:
    for host in lab():
        argv = hosts.create_argv(host, lab(), MACHINE, lacking, "image")
        assert "--privileged" not in argv
        dropped = {argv[index + 1] for index, word in enumerate(argv) if word == "--cap-drop"}
        assert dropped == {"SYS_TIME", "SYS_MODULE", "SYS_BOOT", "SYS_RAWIO", "SYSLOG", "DAC_READ_SEARCH", *lacking}
        mounts = [argv[index + 1] for index, word in enumerate(argv) if word == "--volume"]
        # volumes of the lab or of all labs, nothing of the machine
        assert all(mount.startswith(("taco-lab-lab-gpu", "taco-launch-lab-registry:")) for mount in mounts)
        assert f"taco-launch.lab={host.lab}" in argv


def test_with_user_namespaces_a_host_has_the_machines_own() -> None:
    remapped = engine.RunningEngine("27.1", 2, ours=False, userns=True, containers=0)
    argv = hosts.create_argv(lab()[0], lab(), remapped, (), "image")
    assert argv[argv.index("--userns") + 1] == "host"
    assert "--userns" not in hosts.create_argv(lab()[0], lab(), MACHINE, (), "image")


def test_capabilities_that_a_machine_lacks() -> None:
    assert engine.lacking_capabilities("CapBnd:\t000001fffeffffff\n") == ("SYS_RESOURCE",)
    assert engine.lacking_capabilities("CapBnd:\t000001ffffffffff\n") == ()
    assert "SYS_ADMIN" in engine.lacking_capabilities("CapBnd:\t00000000a80425fb\n")  # a plain container's


# --- addresses --------------------------------------------------------------------------------------------------------


def test_a_network_that_is_free() -> None:
    taken = [IPv4Network("10.213.0.0/23"), IPv4Network("10.213.2.128/25")]
    assert subnet.free(taken) == IPv4Network("10.213.3.0/24")
    assert subnet.free([IPv4Network("10.0.0.0/8")]) == IPv4Network("172.29.0.0/24")
    with pytest.raises(TacoLaunchError, match="no network is free"):
        subnet.free([IPv4Network("0.0.0.0/0")])


def test_routes() -> None:
    table = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert subnet.routed(table) == (IPv4Network("172.17.0.0/16"), IPv4Network("192.0.2.0/24"))


@given(st.integers(1, subnet.MAX_HOSTS))
def test_addresses_are_distinct_and_in_the_network(size: int) -> None:
    net = IPv4Network("10.213.7.0/24")
    found = up.planned(up.LabRequest("lab", size, 1, "none"), net)
    addresses = {host.address for host in found}
    assert len(addresses) == size + 1
    assert not addresses & {"10.213.7.0", "10.213.7.1", "10.213.7.255"}


# --- files of the controller ------------------------------------------------------------------------------------------


def test_known_hosts_name_every_host_both_ways() -> None:
    first, second, _ = lab()
    text = access.known_hosts(
        [(first, "ssh-rsa AAAB root@gpu1\nssh-ed25519 AAAA root@gpu1"), (second, "ssh-ed25519 AAAC")]
    )
    assert text == (
        "gpu1,10.213.0.11 ssh-ed25519 AAAA\ngpu1,10.213.0.11 ssh-rsa AAAB\ngpu2,10.213.0.12 ssh-ed25519 AAAC\n"
    )


def test_files_are_private_and_written_only_when_they_change(tmp_path: Path) -> None:
    files = access.access({"TACO_LAUNCH_STATE": str(tmp_path / "state")}, os.geteuid(), "lab")
    assert files.keep(files.password, "secret\n")
    assert not files.keep(files.password, "secret\n")
    assert files.keep(files.password, "other\n")
    assert files.password.stat().st_mode & 0o777 == 0o600
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in files.folder.iterdir()] == ["registry-password"]


def test_a_lab_elsewhere_is_refused() -> None:
    with pytest.raises(UsageError, match="DOCKER_HOST is ssh://host"):
        engine.connect({"DOCKER_HOST": "ssh://host"})


# --- limits of this machine -------------------------------------------------------------------------------------------


def test_inotify_instances_that_are_used_up_are_told(tmp_path: Path) -> None:
    limit = tmp_path / "sys/fs/inotify/max_user_instances"
    limit.parent.mkdir(parents=True)
    limit.write_text("16\n", "ascii")
    for process in ("1", "20"):
        folder = tmp_path / process / "fd"
        folder.mkdir(parents=True)
        for number in range(7):
            (folder / str(number)).symlink_to("anon_inode:inotify")
        (folder / "9").symlink_to("/dev/null")
    assert "14 of 16): sysctl -w fs.inotify.max_user_instances=128" in hosts._inotify_used_up(tmp_path)
    limit.write_text("128\n", "ascii")
    assert hosts._inotify_used_up(tmp_path) == ""
