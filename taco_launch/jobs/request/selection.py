"""Which hosts a job may be placed on, and which of their GPUs it may have: what --selector, --exclude and others ask for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from taco_launch.core.errors import Fault, SpecError
from taco_launch.core.model.host.hosts import GpuConstraints, Host, Inventory
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory import ranges, select
from taco_launch.hosts.inventory.schema import names

# No host has as many GPUs: more were mistyped.
_MOST = 1 << 8
_INDICES = "indices of GPUs are written 0,2,4-7"
_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


def narrow(request: JobRequest, inventory: Inventory, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return those of the hosts that a job may be placed on, with the constraints on their GPUs.

    Raises:
        SpecError: something is not written as it has to be, names what does not exist, or leaves no host.
    """
    called = request.called
    left = _selected(hosts, request.selectors, called("selectors"))
    without = _excluded(inventory, hosts, request.exclude, called("exclude"))
    only = () if request.gpu_ids is None else indices(request.gpu_ids, called("gpu_ids"))
    for model in request.gpu_models:
        if not model.strip():
            raise _refused(called("gpu_models"), model, "is empty, but must be a part of a GPU's name", "such as V100")
    left = tuple(host for host in left if without.get(host.name, (0,)) != ())
    if not left:
        raise _refused(called("exclude"), ",".join(request.exclude), "no host is left")
    if request.gpus is not None and all(host.gpus == "none" for host in left):
        problem = f"{ranges.fold(host.name for host in left)} is declared to have no GPUs"
        hint = f"{called('workers')} W alone counts slots of any kind, and so does {called('np')} N"
        raise _refused(called("gpus"), "", problem, hint)
    found = []
    for host in left:
        out = without.get(host.name, ())
        if only and set(only) <= set(out):
            problem = f"{called('exclude')} leaves none of these on {host.name}"
            raise _refused(called("gpu_ids"), request.gpu_ids or "", problem)
        topology = host.constraints.topology if request.gpu_topology is None else request.gpu_topology
        found.append(
            replace(host, constraints=GpuConstraints(only, out, request.gpu_models, topology, request.gpus is not None))
        )
    return tuple(found)


def indices(text: str, option: str) -> tuple[int, ...]:
    """Read indices of GPUs, in ascending order.

    Raises:
        SpecError: they are none, or one of them stands there twice.
    """
    found: list[int] = []
    for word in text.split(","):
        match = _RANGE.fullmatch(word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first or last >= _MOST:
            raise _refused(option, text, _INDICES)
        found += range(first, last + 1)
    twice = next((index for index in found if found.count(index) > 1), None)
    if twice is not None:
        raise _refused(option, text, f"{twice} is listed twice; list each index once")
    return tuple(sorted(found))


def selector(text: str) -> tuple[str, str]:
    """Read LABEL=VALUE.

    Raises:
        SpecError: it is not that.
    """
    label, sign, value = text.partition("=")
    if not sign or not label.strip() or not value.strip():
        raise _refused("--selector", text, "must be LABEL=VALUE, a label of the inventory and its value")
    return label.strip(), value.strip()


def _selected(hosts: Sequence[Host], selectors: Sequence[tuple[str, str]], option: str) -> tuple[Host, ...]:
    left = tuple(hosts)
    for label, value in selectors:
        text = f"{label}={value}"
        known = dict.fromkeys(name for host in hosts for name, _value in host.labels)
        values = dict.fromkeys(told for host in hosts for name, told in host.labels if name == label)
        if not values:
            there = f"the hosts have {', '.join(known)}" if known else "no host has any label"
            hint = names.did_you_mean(label, known) or "labels: {leaf: a} in the inventory"
            raise _refused(option, text, f"no host has a label {names.shown(label)}; {there}", hint)
        if value not in values:
            there = f"there are {', '.join(f'{label}={told}' for told in values)}"
            hint = names.did_you_mean(value, values)
            raise _refused(option, text, f"no host has it; {there}", hint)
        left = tuple(host for host in left if dict(host.labels).get(label) == value)
    if not left:
        raise _refused(option, ",".join("=".join(each) for each in selectors), "no host has all of these")
    return left


def _excluded(
    inventory: Inventory, hosts: Sequence[Host], exclude: Sequence[str], option: str
) -> Mapping[str, tuple[int, ...]]:
    """Return the indices of GPUs that are left out, by host; () for the whole host.

    Raises:
        SpecError: the text is wrong.
    """
    where = replace(inventory, hosts=(*inventory.hosts, *hosts))
    found: dict[str, tuple[int, ...]] = {}
    for text in exclude:
        match = select.IPV6.fullmatch(text)
        name, colon, rest = (f"[{match[1]}]", ":" if match[2] else "", match[2] or "") if match else text.partition(":")
        gpus = indices(rest, option) if colon else ()
        try:
            chosen = select.choose(where, name)
        except SpecError as error:
            raise SpecError(option, error.faults, error.hint, short=error.short) from None
        for host in chosen:
            before = found.get(host.name)
            found[host.name] = () if not gpus or before == () else tuple(sorted({*(before or ()), *gpus}))
    return found


def _refused(option: str, text: str, problem: str, hint: str = "") -> SpecError:
    return SpecError(option, (Fault("", names.shown(text), problem, hint),))
