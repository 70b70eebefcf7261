"""Facts as the JSON document that `taco-launch facts -o json` prints: of one host, and of hosts side by side."""

from dataclasses import fields, is_dataclass
from typing import Any, Dict, List, Optional, Sequence

from taco_launch.core.facts import SUBJECTS
from taco_launch.core.facts.fabric import fabric
from taco_launch.core.facts.gpus.hca_distance import distances
from taco_launch.core.facts.rdma.gid import by_nccl, on_interface
from taco_launch.core.facts.rdma.hcas import UNNAMED
from taco_launch.core.facts.reports.compare import fold
from taco_launch.core.facts.reports.health.judge import checked
from taco_launch.core.facts.reports.health.system import Expected
from taco_launch.core.facts.reports.health.verdict import HealthVerdict
from taco_launch.core.facts.reports.summary import rows
from taco_launch.core.model.codec import to_json
from taco_launch.core.model.host.fabric import FabricChoice, GidChoice
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown, not_told, was_requested
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Gpus, Port, Rdma

# what tells the items of a list apart, and names them in "where"
_KEYS = ("index", "name", "number", "pid", "hca")


def cluster(hosts: Sequence[HostFacts]) -> Dict[str, Any]:
    """Return the document of several hosts: `hosts`, `differences` and `fabric`, which is null without a host.

    `differences` lists the facts in which hosts differ that should agree: {"subject", "name", "values"}, each of these
    {"value", "hosts"}, the most frequent first.
    """
    told = dict(checked(hosts, Expected()))
    return {
        "hosts": [document(facts, told[facts.host]) for facts in hosts],
        "differences": [
            {
                "subject": row.subject,
                "name": row.name,
                "values": [{"value": text, "hosts": list(names)} for text, names in row.values],
            }
            for row in fold([(facts.host, rows(facts)) for facts in hosts])
            if row.differs
        ],
        "fabric": to_json(fabric(hosts)) if hosts else None,
    }


def document(facts: HostFacts, health: Optional[Sequence[HealthVerdict]] = None) -> Dict[str, Any]:
    """Return the document: `host`, `simulated`, `asked` (subjects that were looked at), the subjects, `gid`, `gids`, `distances`, `health` and `unknown`.

    What is Absent or Unknown is null in its place. `unknown` lists `{"where", "reason"}` of what could not be read or
    understood; what nobody requested, or no captured output is of, is not listed. `gid` is the choice for the HCA
    that a job would use, `gids` one for each RoCE port that may be in use, as {"hca", "port", "gid_index", "why"}.
    `health` lists verdicts as {"name", "level", "text", "source", "hint"}: those given, which the other hosts are part of, or its own.
    """
    unknown: List[Dict[str, str]] = []
    found: Dict[str, Any] = {"host": facts.host, "simulated": _plain(facts.simulated, "simulated", unknown)}
    found["asked"] = [subject for subject in SUBJECTS if was_requested(getattr(facts, subject))]
    for subject in SUBJECTS:
        found[subject] = _plain(getattr(facts, subject), subject, unknown)
    found["gid"] = _gid_of(_gid(facts), "gid", unknown)
    choices = [_gid_of(one, f"gids[{place}]", unknown) for place, one in enumerate(_gids(facts))]
    found["gids"] = [choice for choice in choices if choice is not None]
    links = distances(facts)
    told = links if isinstance(links, tuple) or links != facts.topology else NOT_ASKED
    found["distances"] = _plain(told, "distances", unknown)
    own = checked((facts,), Expected())[0][1] if health is None else health
    found["health"] = [to_json(verdict) for verdict in own]
    lost = facts.gpu.lost if isinstance(facts.gpu, Gpus) else ()
    unknown += [{"where": "gpu.gpus", "reason": words} for words in lost]
    unknown += [{"where": file, "reason": reason} for file, reason in facts.unread]
    found["unknown"] = unknown
    return found


def _gid(facts: HostFacts) -> Found[GidChoice]:
    """Return the GID choice of the first port that a job would use; of the first with a GID where no state is known."""
    if not isinstance(facts.rdma, Rdma):
        return facts.rdma
    if isinstance(facts.rdma.hcas, tuple) and not any(
        _has_table(port) for hca in facts.rdma.hcas for port in hca.ports
    ):
        return not_told("no GID table is known")
    chosen = fabric((facts,))
    if chosen.gids:
        return chosen.gids[0].choice
    if isinstance(chosen.link_layer, FabricChoice):
        return chosen.gid_index if isinstance(chosen.gid_index, (Absent, Unknown)) else Unknown("no port has a GID")
    choices = _gids(facts)
    if not choices:
        return chosen.link_layer
    return next((one for one in choices if isinstance(one, GidChoice)), choices[0])


def _has_table(port: Port) -> bool:
    return was_requested(port.gids)


def _gids(facts: HostFacts) -> List[Found[GidChoice]]:
    found: List[Found[GidChoice]] = []
    for hca in facts.hcas if isinstance(facts.hcas, tuple) else ():
        for port in hca.ports:
            if port.state not in ("DOWN", "INIT", "ARMED") and isinstance(port.gids, tuple):
                choice = by_nccl(hca.name, port)
                if isinstance(choice, Unknown):
                    told = on_interface(hca.name, port)
                    choice = told if isinstance(told, GidChoice) else choice
                found += [] if isinstance(choice, Absent) else [choice]
    return found


def _gid_of(choice: Found[GidChoice], where: str, unknown: List[Dict[str, str]]) -> Any:
    found = _plain(choice, where, unknown)
    if isinstance(choice, GidChoice):
        for key, not_shown in (("hca", UNNAMED), ("port", 0)):
            if found[key] == not_shown:
                found[key] = None
                unknown.append(
                    {
                        "where": f"{where}.{key}",
                        "reason": "the captured output does not show to which port these GIDs belong",
                    }
                )
    return found


def _plain(value: Any, where: str, unknown: List[Dict[str, str]]) -> Any:
    if isinstance(value, (Absent, Unknown)):
        if isinstance(value, Unknown) and was_requested(value):
            unknown.append({"where": where, "reason": value.reason})
        return None
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{_key(item, place)}]", unknown) for place, item in enumerate(value)]
    if is_dataclass(value):
        return {
            entry.name: _plain(getattr(value, entry.name), f"{where}.{entry.name}", unknown) for entry in fields(value)
        }
    return None if value == "" else value


def _key(item: Any, place: int) -> Any:
    told: Optional[Any] = next(
        (getattr(item, key) for key in _KEYS if getattr(item, key, None) not in (None, "")), None
    )
    return place if told is None or isinstance(told, (Absent, Unknown)) else told
