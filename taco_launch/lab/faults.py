"""The faults that can be put on a lab host: one table, and how each is applied, seen and undone."""

import re

from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.frozen import dataclass
from taco_launch.lab.docker.engine import ProgramResult, docker, execute
from taco_launch.lab.docker.hosts import STATE_BYTES, STATE_PATH, FoundHost, require_on, state_word
from taco_launch.lab.docker.labels import option_of

_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s|m|h)?")
_OFFSET = re.compile(r"([+-]?)(\d{1,9})(s|m|h|d)?")
_PERCENT = re.compile(r"[1-9]\d?")
_RATE = re.compile(r"(\d{1,6})(kbit|mbit|gbit)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "kbit": 1000, "mbit": 1000**2, "gbit": 1000**3}
_LONGEST_CUT = 3600
# tc-tbf(8): the bucket has to hold what arrives in one tick of the slowest kernel clock, 100 a second, and more than
# the largest packet that a veth carries (64 KiB)
_TICKS, _LEAST_BURST = 100, 128 << 10

# Scripts find the interface by its address: it may be called eth0, bond0 or anything else. $1 is that address, $2 and
# $3 are the fault's own.
_DEVICE = 'device=$(ip -oneline -4 address show to "$1" | { read -r _ name _ && echo "$name"; }) || exit 1\n'
_SILENCE = """nft -f - <<RULES
table inet taco_lab_{name}
delete table inet taco_lab_{name}
table inet taco_lab_{name} {{
  chain incoming {{ type filter hook prerouting priority -400; iifname != "lo" drop; }}
  chain outgoing {{ type filter hook output priority -400; oifname != "lo" drop; }}
}}
RULES
"""
_LOSS = """nft -f - <<RULES
table inet taco_lab_loss
delete table inet taco_lab_loss
table inet taco_lab_loss {
  chain incoming { type filter hook prerouting priority -400; iifname != "lo" numgen random mod 100 < $2 drop; }
  chain outgoing { type filter hook output priority -400; oifname != "lo" numgen random mod 100 < $2 drop; }
}
RULES
"""
_LOST = (
    "nft list table inet taco_lab_loss 2>/dev/null | sed -n 's/.*< \\([0-9]*\\) drop.*/\\1 %/p' | head -n 1 | grep ."
)
# The limit of the host's own control group: version 2, else version 1.
_SLOW_CPU = """if [ -e /sys/fs/cgroup/cpu.max ]; then cut -d' ' -f1 /sys/fs/cgroup/cpu.max
else cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us; fi | sed -n 's/^\\([1-9][0-9]*\\)000$/\\1 %/p' | grep ."""
# What distributions' firewalls let in when they are switched on: ssh, pings, and answers to what went out.
_FIREWALL = """nft -f - <<RULES
table inet taco_lab_firewall
delete table inet taco_lab_firewall
table inet taco_lab_firewall {
  chain incoming {
    type filter hook input priority 10;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto { icmp, ipv6-icmp } accept
    tcp dport 22 accept
    reject with icmpx admin-prohibited
  }
}
RULES
"""
_NO_TABLE = "if nft list table inet taco_lab_{name} >/dev/null 2>&1; then nft delete table inet taco_lab_{name}; fi\n"
_HAS_TABLE = "nft list table inet taco_lab_{name} >/dev/null 2>&1"
# One page is always written, so that the size that is left is never 0, which a tmpfs takes for "no limit".
_FULL = f"""head -c 4096 /dev/zero >{STATE_PATH}/.lab-disk-full
for attempt in 1 2 3 4 5; do # what is written meanwhile makes it too small: try again
  set -- $(stat --file-system --format '%b %f %S' {STATE_PATH})
  mount -o "remount,size=$((($1 - $2) * $3))" {STATE_PATH} && exit 0
done
exit 1
"""
_CLOCK = """library=$(ls /usr/lib/*/faketime/libfaketime.so.1)
printf 'SetEnv LD_PRELOAD=%s FAKETIME=%s FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1\\n' "$library" "$2" \\
  >/etc/ssh/sshd_config.d/00-lab-clock.conf
systemctl restart ssh.service
"""


_FAST_LINK = _DEVICE + 'case $(tc qdisc show dev "$device") in *tbf*) tc qdisc del dev "$device" root ;; esac\n'


@dataclass(frozen=True)
class InjectedFault:
    """One fault, or what undoes one.

    `argument` is what it takes in words for people ("" for nothing), `default` what it takes where none is given (None:
    it must be). `act` is a docker command (`kill`), with {} for the argument, or, with `script`, a shell script that runs in the host. `seen` is a
    shell script that prints details and succeeds while the fault is in force. `says` is told when it is done, `undo` is
    the name of what undoes it. `states` are those of a host that can take it; `registry` says whether the registry can.
    """

    name: str
    about: str
    says: str
    act: str = ""
    script: str = ""
    argument: str = ""
    default: str | None = None
    undo: str = ""
    seen: str = ""
    states: tuple[str, ...] = ("on",)
    registry: bool = True


FAULTS = (
    InjectedFault(
        "power-off",
        "pull the plug: everything in it dies at once; disks stay",
        "is off, as after a power cut",
        act="kill",
        undo="power-on",
        states=("on", "paused"),
    ),
    InjectedFault("power-on", "start it again", "is starting", act="start", states=("off",)),
    InjectedFault(
        "reboot",
        "reboot it in an orderly way, as the command `reboot` does",
        "is rebooting",
        script="systemctl reboot --no-block\n",
    ),
    InjectedFault(
        "pause",
        "freeze all its processes: it stays up, but does not answer",
        "is frozen",
        act="pause",
        undo="resume",
    ),
    InjectedFault("resume", "let its processes continue", "continues", act="unpause", states=("paused",)),
    InjectedFault(
        "partition",
        "cut it off from the network: packets vanish in both directions",
        "is cut off: no packet comes in or goes out",
        script=_SILENCE.format(name="partition"),
        undo="heal",
        seen=_HAS_TABLE.format(name="partition"),
    ),
    InjectedFault(
        "heal",
        "undo partition, cut, slow-link and loss",
        "is back on the network, with its link at full speed",
        script=_NO_TABLE.format(name="partition")
        + _NO_TABLE.format(name="cut")
        + _NO_TABLE.format(name="loss")
        + _FAST_LINK,
    ),
    InjectedFault(
        "cut",
        "cut it off from the network for SECONDS, then heal it",
        "was cut off for {}",
        # the host heals itself, also when this command is ended meanwhile
        script=_SILENCE.format(name="cut") + 'sleep "$2"\n' + _NO_TABLE.format(name="cut"),
        argument="SECONDS",
        undo="heal",
        seen=_HAS_TABLE.format(name="cut"),
    ),
    InjectedFault(
        "slow-link",
        "let it send no faster than RATE",
        "sends at most {}",
        script=_DEVICE + 'tc qdisc replace dev "$device" root tbf rate "$2" burst "$3" latency 100ms\n',
        argument="RATE",
        undo="heal",
        seen="tc qdisc show dev \"$device\" | sed -n 's/^qdisc tbf .* rate \\([^ ]*\\) .*/\\1/p' | grep .",
    ),
    InjectedFault(
        "loss",
        "lose PERCENT of the packets that it sends and receives",
        "loses {} % of its packets",
        script=_LOSS,
        argument="PERCENT",
        undo="heal",
        seen=_LOST,
    ),
    InjectedFault(
        "slow-cpu",
        "give it PERCENT of one CPU for all of its processes",
        "has {} % of one CPU",
        act="update --cpu-period 100000 --cpu-quota {}000",
        argument="PERCENT",
        undo="fast-cpu",
        seen=_SLOW_CPU,
    ),
    InjectedFault("fast-cpu", "undo slow-cpu", "has all CPUs again", act="update --cpu-quota -1"),
    InjectedFault(
        "disk-full",
        f"fill the disk of {STATE_PATH}, where taco-launch keeps its files on the host",
        f"has no room left in {STATE_PATH}",
        script=_FULL,
        undo="disk-free",
        seen=f'[ "$(stat --file-system --format %b {STATE_PATH})" -lt {STATE_BYTES // 4096} ]',
        registry=False,
    ),
    InjectedFault(
        "disk-free",
        "undo disk-full",
        f"has room in {STATE_PATH} again",
        script=f"mount -o remount,size={STATE_BYTES} {STATE_PATH}\nrm -f {STATE_PATH}/.lab-disk-full\n",
        registry=False,
    ),
    InjectedFault(
        "stop-sshd",
        "stop sshd: no new logins; open sessions stay",
        "accepts no connection on port 22",
        script="systemctl stop ssh.socket ssh.service 2>/dev/null || systemctl stop ssh.service\n",
        undo="start-sshd",
        # not while it boots
        seen="! systemctl --quiet is-active ssh.service ssh.socket && case $(systemctl is-system-running) in initializing | starting) false ;; esac",
    ),
    InjectedFault("start-sshd", "undo stop-sshd", "accepts connections again", script="systemctl start ssh.service\n"),
    InjectedFault(
        "firewall",
        "turn on a firewall that lets in ssh and pings and refuses the rest",
        "lets in ssh and pings, and refuses the rest",
        script=_FIREWALL,
        undo="no-firewall",
        seen=_HAS_TABLE.format(name="firewall"),
    ),
    InjectedFault("no-firewall", "undo firewall", "lets everything in", script=_NO_TABLE.format(name="firewall")),
    InjectedFault(
        "clock-skew",
        "give programs in new ssh sessions a clock that is off by OFFSET (libfaketime; not under sudo)",
        "has a clock that is off by {}, for new ssh sessions",
        script=_CLOCK,
        argument="OFFSET",
        default="+90s",
        undo="clock-right",
        seen="sed -n 's/.* FAKETIME=\\([^ ]*\\) .*/\\1/p' /etc/ssh/sshd_config.d/00-lab-clock.conf 2>/dev/null | grep .",
    ),
    InjectedFault(
        "clock-right",
        "undo clock-skew",
        "has the right clock, for new ssh sessions",
        script="rm -f /etc/ssh/sshd_config.d/00-lab-clock.conf\nsystemctl restart ssh.service\n",
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


def arguments(fault: InjectedFault, text: str | None) -> tuple[str, ...]:
    """Read what a user wrote after a fault's name into the words that its script takes.

    SECONDS is `5`, `5s`, `300ms`, `2m`; RATE is `100mbit`, `64kbit`, `1gbit`; OFFSET is `+90s`, `-2h`, `3d`; PERCENT is a
    whole number from 1 to 99.

    Raises:
        UsageError: it takes none, or needs one, or this is none.
    """
    if not fault.argument:
        if text is not None:
            raise UsageError(f"{fault.name} accepts no argument: {text!r}")
        return ()
    given = fault.default if text is None else text
    example = {"SECONDS": "5s", "RATE": "100mbit", "OFFSET": "+90s", "PERCENT": "5"}[fault.argument]
    if given is None:
        raise UsageError(f"{fault.name} needs an argument, {fault.argument}", hint=f"such as: {fault.name} {example}")
    if fault.argument == "SECONDS" and (match := _SECONDS.fullmatch(given)):
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
        if 0 < seconds <= _LONGEST_CUT:
            return (f"{seconds:g}",)
        raise UsageError(
            f"{fault.name} {given}: the time must be more than 0 and at most {_LONGEST_CUT} s",
            hint="to cut it off without a time limit, use partition",
        )
    if fault.argument == "RATE" and (match := _RATE.fullmatch(given)) and int(match[1]):
        bits = int(match[1]) * int(_UNITS[match[2]])
        return f"{bits}bit", str(max(_LEAST_BURST, bits // 8 // _TICKS))
    if fault.argument == "OFFSET" and (match := _OFFSET.fullmatch(given)) and int(match[2]):
        return (f"{match[1] or '+'}{int(match[2]) * int(_UNITS[match[3] or 's'])}",)
    if fault.argument == "PERCENT" and _PERCENT.fullmatch(given):
        return (given,)
    raise UsageError(f"{fault.name} {given}: {given!r} is no {fault.argument}", hint=f"such as: {fault.name} {example}")


def apply(found: FoundHost, fault: InjectedFault, text: str | None) -> str:
    """Put a fault on a host, or undo one; doing either twice does no harm. Give what to say.

    Raises:
        UsageError: the argument is wrong, or the host is in no state for it.
        HostError: it could not be done: what the host said.
    """
    words = arguments(fault, text)
    host = found.host
    _require(found, fault)
    if fault.act:
        docker(*fault.act.format(*words).split(), found.container)
    else:
        answer = execute(
            found.container, "/bin/sh", "-c", fault.script, fault.name, host.address, *words, timeout=_LONGEST_CUT + 60
        )
        if answer.code:
            raise HostError(f"{host.name}: {fault.name}: {_why(answer)}")
    says = f"{host.name} {fault.says.format(text or fault.default)}"
    if not fault.undo or fault.name == "cut":
        return says
    return f"{says} (undo: taco-launch lab fault{option_of(host.lab)} {host.name} {fault.undo})"


def _why(answer: ProgramResult) -> str:
    said = answer.stderr or answer.text or f"exit {answer.code}"
    if "Specified qdisc kind is unknown" in said:
        return "the kernel of this machine has no tbf qdisc (CONFIG_NET_SCH_TBF): slow links are not possible here"
    if "Could not process rule" in said and "Operation not supported" in said:
        return f"the kernel of this machine has no such nftables rule: {said.splitlines()[0]}"
    return said


def _require(found: FoundHost, fault: InjectedFault) -> None:
    """Refuse a fault that the host cannot take in its state.

    Raises:
        UsageError: why, and what to type before.
    """
    host, state = found.host, state_word(found.state)
    if host.is_registry and not fault.registry:
        raise UsageError(f"{host.name} has no disk of its own that could be full", hint="the other faults work on it")
    if state not in fault.states:
        require_on(found, f"there is nothing for {fault.name} to do")
        raise UsageError(f"{host.name} is {state}: there is nothing for {fault.name} to undo")


def in_force(found: FoundHost) -> tuple[str, ...]:
    """Look which faults are in force on a host, with their details: `slow-link 100Mbit`."""
    state = state_word(found.state)
    if state != "on":
        return {"off": ("power-off",), "paused": ("pause",)}.get(state, ())
    tests = "".join(
        f"if said=$({fault.seen}); then echo {fault.name} $said; fi\n"
        for fault in FAULTS
        if fault.seen and (fault.registry or not found.host.is_registry)
    )
    answer = execute(found.container, "/bin/sh", "-c", _DEVICE + tests, "look", found.host.address)
    return tuple(answer.text.splitlines()) if answer.code == 0 else (f"unknown ({answer.stderr or 'no answer'})",)
