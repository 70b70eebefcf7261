"""The host's clock against the controller's, and logind's two settings; the rest of a system is in test_parse.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.facts.system.clock import Clock, parse_clock
from taco_launch.core.facts.system.disks import disk
from taco_launch.core.facts.system.system import memlock, parse_logind
from taco_launch.core.facts.text.sections import Section, read
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.facts import Disk

SEEN = 1790000000.0


def clock(began: str, ended: str = "") -> Clock:
    done = f"m done {ended}\n" if ended else ""
    return parse_clock(read(f"m probe 1 {began}\n{done}".encode()), SEEN, SEEN + 1)


@pytest.mark.parametrize(
    ("times", "offset", "error", "within"),
    [
        # sent 0.0, started 0.1, ended 0.8, received 1.0 on one clock: 0.3 s of the second were under way
        (("1790000000.100000000", "1790000000.800000000"), -0.05, 0.15, 1e-5),
        (("1790003600.100000000", "1790003600.900000000"), 3600, 0.1, 1e-5),  # an hour ahead
        (("1790000000.500000000",), 0, 0.5, None),  # the middle of an answer that was cut
        *(((began, began), 0, 1, None) for began in ("1790000000", "1790000000.%N", "1790000000.N")),  # whole seconds
    ],
)
def test_two_times_leave_only_the_way_there_and_back(
    times: tuple[str, ...], offset: float, error: float, within: float | None
) -> None:
    seen_offset, seen_error = clock(*times)
    assert seen_offset == pytest.approx(offset, abs=within)
    assert seen_error == pytest.approx(error, abs=within)


def test_a_clock_that_was_set() -> None:
    offset, _ = clock("1790000000.500000000", "1790000009.000000000")
    assert offset == Unknown("a clock was set, on the host or on this machine, during the check")


def test_no_time_at_all() -> None:
    assert parse_clock({}, SEEN, SEEN + 1) == (Unknown("the probe did not report the host's time"),) * 2


@given(
    st.floats(-1e6, 1e6),
    st.floats(0.001, 100),
    st.floats(0, 100),
    st.floats(0.001, 100),
    st.sampled_from(["{:.9f}", "{:.9f}", "seconds"]),
)
def test_the_offset_lies_within_its_error(offset: float, there: float, work: float, back: float, form: str) -> None:
    times = [SEEN + there + offset, SEEN + there + work + offset]
    began, ended = (str(int(time)) if form == "seconds" else form.format(time) for time in times)
    told = read(f"m probe 1 {began}\nm done {ended}\n".encode())
    found, error = parse_clock(told, SEEN, SEEN + there + work + back)
    assert isinstance(found, float)
    assert isinstance(error, float)
    assert abs(found - offset) <= error + 1e-5


MAIN = "/etc/systemd/logind.conf:#KillUserProcesses=no\n/etc/systemd/logind.conf:#RemoveIPC=yes\n"
NO_BUS = Section("system.logind", "", "Failed to connect to bus: No such file or directory\n", 1)


def logind(bus: Section, conf: str = MAIN) -> tuple[object, object]:
    told = Section(
        "system.logind_conf", conf, "grep: /etc/systemd/logind.conf.d/*.conf: No such file or directory\n", 2
    )
    return parse_logind({"system.logind": bus, "system.logind_conf": told}, "systemd")


def test_what_the_running_logind_says_counts() -> None:
    assert logind(Section("system.logind", "b true\nb false\n", "", 0)) == (False, True)


def test_an_old_logind_tells_one_of_the_two() -> None:
    assert logind(Section("system.logind", "b true\n", "Unknown property or interface.\n", 1)) == (True, True)


@pytest.mark.parametrize(
    ("drop_ins", "remove_ipc"),
    [
        ("", True),  # the default, which the file shows as a comment
        ("/etc/systemd/logind.conf.d/a.conf:RemoveIPC=no\n", False),
        ("/etc/systemd/logind.conf.d/a.conf:RemoveIPC = 0\n", False),
        ("/usr/lib/systemd/logind.conf.d/a.conf:RemoveIPC=no\n/etc/systemd/logind.conf.d/a.conf:RemoveIPC=yes\n", True),
        (
            "/usr/lib/systemd/logind.conf.d/z.conf:RemoveIPC=no\n/etc/systemd/logind.conf.d/a.conf:RemoveIPC=yes\n",
            False,
        ),
        ("/etc/systemd/logind.conf.d/a.conf:#RemoveIPC=no\n", True),
    ],
)
def test_without_a_bus_the_configuration_counts(drop_ins: str, remove_ipc: bool) -> None:
    assert logind(NO_BUS, MAIN + drop_ins) == (remove_ipc, False)


def test_neither_bus_nor_configuration() -> None:
    found = logind(NO_BUS, "")
    why = "Failed to connect to bus: No such file or directory, and logind.conf does not set "
    assert found == (Unknown(why + "RemoveIPC"), Unknown(why + "KillUserProcesses"))


def test_without_systemd_there_is_no_logind() -> None:
    assert parse_logind({}, "openrc-init") == (Absent("init is openrc-init, not systemd"),) * 2


def test_df() -> None:
    head = "Filesystem     Type 1024-blocks Used Available Capacity Mounted on\n"
    assert disk(head + "/dev/sda1      ext4         100   90         -5     100% /my data\n") == (
        Disk("/my data", "ext4", 102400, 0),
    )
    assert isinstance(disk("Dateisystem Typ 1K-Blöcke\n/dev/sda1 ext4 1 1 1 1% /\n"), Unknown)
    assert isinstance(disk(head + "/dev/sda1      ext4         1009010 100% /\n"), Unknown)


def test_memlock() -> None:
    rows = "Max {} 8388608 unlimited bytes\n"
    text = "".join(rows.format(name) for name in ("locked memory", "stack size", "open files", "processes"))
    assert memlock(text) == 8388608
    assert memlock(text.replace("locked memory 8388608", "locked memory unlimited")) is None
    assert isinstance(memlock(""), Unknown)
