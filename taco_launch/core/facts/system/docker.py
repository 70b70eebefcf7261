"""Reads the host's container engine: docker, podman that answers as docker, or none; its containers and images."""

import json
import re
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from taco_launch.core.facts.text.sections import (
    NOT_FOUND,
    Failure,
    Section,
    Sections,
    answer,
    failure,
    section_summary,
    unasked,
)
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model import codec
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.facts import ContainerState, DockerFacts, Image

_NOT_RUNNING = re.compile(r"Cannot connect to the Docker daemon.*|.*Is the docker daemon running\?.*")
_NO_RIGHT = re.compile(r".*permission denied.*", re.IGNORECASE)
_GONE = re.compile(r"Error.*: No such (?:container|object).*")
_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(B|kB|KB|MB|GB|TB)")
_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_PROGRAM = re.compile("nvidia-[a-z-]+")
_CDI = re.compile(r"""(/[^:]+):[{,\s-]?"?(kind|name)"?:\s*"?([A-Za-z0-9._/:-]+)""")
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def parse_docker(sections: Sections) -> Found[DockerFacts]:
    """Read the probe's sections docker.*.

    Absent where there is no docker command. Where there is one and no engine runs, `version` is Absent; where this user
    may not ask it, or its answer is not understood, Unknown; the rest of what only the engine knows is Unknown then.
    """
    missing = unasked(sections, "docker")
    if missing is not None:
        return missing
    why = failure(sections, "docker.info")
    section = sections.get("docker.info")
    if section is None or section.exit_code is None:
        return why or Unknown("docker info was not queried")
    if section.exit_code == NOT_FOUND:
        return Absent("docker: not found")
    info = _info(section, why)
    engine = info if isinstance(info, (Absent, Unknown)) else _engine(info)
    if isinstance(engine, (Absent, Unknown)):
        engine = DockerFacts(version=engine)
    else:
        engine = replace(
            engine,
            containers=_containers(sections),
            images=_images(answer(sections, "docker.images")),
        )
    return replace(
        engine,
        toolkit=_toolkit(answer(sections, "docker.toolkit")),
        config=answer(sections, "docker.config"),
        toolkit_programs=_programs(answer(sections, "docker.toolkit_programs")),
        cdi=_devices(answer(sections, "docker.cdi")),
    )


def _info(section: Section, why: Optional[Failure]) -> Found[Mapping[str, Any]]:
    """Return what `docker info` says; without an engine it says an empty answer too, and why on stderr."""
    if why is not None:
        for line in section.stderr.split("\n"):
            if _NOT_RUNNING.fullmatch(line):
                return Absent(line.strip())
            if _NO_RIGHT.fullmatch(line) and "config file" not in line:
                return Unknown(line.strip())
        return Unknown(section_summary(section) or why.reason)
    try:
        info = codec.load(section.stdout)
    except ValueError:
        info = None
    if not isinstance(info, dict):
        return Unknown(f"docker info: {shown(section.stdout)} is not understood")
    errors = info.get("ServerErrors")
    if errors:
        words = _words(errors) or (str(errors),)
        return Absent(words[0]) if _NOT_RUNNING.fullmatch(words[0]) else Unknown("; ".join(words))
    return info


def _engine(info: Mapping[str, Any]) -> Found[DockerFacts]:
    """Read docker's own answer, or podman's (podman-info(1)), which has the keys host, store and version."""
    if isinstance(info.get("host"), dict) and isinstance(info.get("store"), dict):
        return _podman(info)
    version = _version(info, "ServerVersion")
    if not isinstance(version, str):
        return version
    options = _words(info.get("SecurityOptions")) or ()
    names = tuple(option.partition(",")[0] for option in options)
    registries = info.get("RegistryConfig")
    registries = registries if isinstance(registries, dict) else {}
    return DockerFacts(
        version=version,
        flavour="rootless" if "name=rootless" in names else "docker",
        userns=bool({"name=userns", "name=rootless"} & {*names})
        if isinstance(info.get("SecurityOptions"), list)
        else _no("SecurityOptions"),
        root=_text(info, "DockerRootDir"),
        storage=_text(info, "Driver"),
        cgroup_driver=_text(info, "CgroupDriver"),
        cgroup_version=_cgroup(info.get("CgroupVersion"), version),
        runtimes=_runtimes(info["Runtimes"]) if isinstance(info.get("Runtimes"), dict) else _no("Runtimes"),
        default_runtime=_text(info, "DefaultRuntime"),
        live_restore=_truth(info.get("LiveRestoreEnabled"), "LiveRestoreEnabled"),
        mirrors=_list(registries.get("Mirrors"), "Mirrors"),
        insecure_registries=_insecure(registries),
        cdi_folders=_cdi_folders(info),
        security=tuple(sorted(name.partition("=")[2] for name in names))
        if isinstance(info.get("SecurityOptions"), list)
        else _no("SecurityOptions"),
    )


def _runtimes(named: Mapping[str, Any]) -> Tuple[str, ...]:
    """Return their names, but for containerd's own for runc, which an engine lists from its second start on only."""
    return tuple(sorted(name for name in named if not name.startswith("io.containerd.")))


def _podman(info: Mapping[str, Any]) -> DockerFacts:
    host, store = info["host"], info["store"]
    version = info.get("version")
    security = host.get("security")
    runtime = host.get("ociRuntime")
    name = _text(runtime, "name") if isinstance(runtime, dict) else _no("ociRuntime")
    cgroup = {"v1": 1, "v2": 2}.get(str(host.get("cgroupVersion")))
    none = Absent("podman has no daemon")
    elsewhere = Absent("podman reads them from /etc/containers/registries.conf")
    return DockerFacts(
        version=_version(version, "Version") if isinstance(version, dict) else _no("version"),
        flavour="podman",
        userns=_truth(security.get("rootless") if isinstance(security, dict) else None, "rootless"),
        root=_text(store, "graphRoot"),
        storage=_text(store, "graphDriverName"),
        cgroup_driver=_text(host, "cgroupManager"),
        cgroup_version=cgroup if cgroup is not None else _no("cgroupVersion"),
        runtimes=(name,) if isinstance(name, str) else name,
        default_runtime=name,
        live_restore=none,
        mirrors=elsewhere,
        insecure_registries=elsewhere,
    )


def _cgroup(told: Any, version: str) -> Found[int]:
    """Return 1 or 2; engines before 20.10, which brought cgroup v2, do not tell."""
    if told in ("1", "2"):
        return int(told)
    match = re.match(r"([0-9]{1,3})\.([0-9]{1,3})\.", version)
    if told is None and match is not None and (int(match[1]), int(match[2])) < (20, 10):
        return 1
    return _no("CgroupVersion")


def _insecure(registries: Mapping[str, Any]) -> Found[Tuple[str, ...]]:
    networks, named = _words(registries.get("InsecureRegistryCIDRs")), registries.get("IndexConfigs")
    if networks is None or not isinstance(named, dict):
        return _no("InsecureRegistryCIDRs")
    names = [name for name, index in named.items() if isinstance(index, dict) and index.get("Secure") is False]
    return tuple(dict.fromkeys((*networks, *sorted(names))))


def _no(name: str) -> Unknown:
    return Unknown(f"docker info does not report {name}")


def _text(told: Mapping[str, Any], name: str) -> Found[str]:
    value = told.get(name)
    return value if isinstance(value, str) and value else _no(name)


def _version(told: Mapping[str, Any], name: str) -> Found[str]:
    value = _text(told, name)
    whole = isinstance(value, str) and re.fullmatch(r"[0-9]+(?:\.[0-9]+)+[\w.+~-]*", value, re.ASCII)
    return value if whole else _no(name)


def _truth(value: Any, name: str) -> Found[bool]:
    return value if isinstance(value, bool) else _no(name)


def _words(value: Any) -> Optional[Tuple[str, ...]]:
    whole = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return tuple(value) if whole else None


def _list(value: Any, name: str) -> Found[Tuple[str, ...]]:
    words = () if value is None else _words(value)
    return _no(name) if words is None else words


def _containers(sections: Sections) -> Found[Tuple[ContainerState, ...]]:
    """Read a line of four JSON values for each container; one that went after it was listed is left out."""
    section = sections.get("docker.containers")
    why = failure(sections, "docker.containers")
    complaints = section.stderr.splitlines() if section is not None else []
    gone = section is not None and section.exit_code == 1 and all(map(_GONE.fullmatch, complaints)) and complaints
    if section is None or (why is not None and not gone):
        return Unknown(why.reason if why else "the engine did not report")
    found: List[ContainerState] = []
    for line in section.stdout.split("\n"):
        if not line.strip():
            continue
        values = _values(line)
        if (
            len(values) != 4
            or not all(isinstance(value, str) and value for value in values[:3])
            or not isinstance(values[3], (dict, type(None)))
        ):
            return Unknown(f"docker container inspect: {shown(line)} is not understood")
        labels: Dict[str, Any] = values[3] or {}
        if not all(isinstance(value, str) for value in labels.values()):
            return Unknown(f"docker container inspect: {shown(line)} is not understood")
        name, image, state = values[:3]
        found.append(ContainerState(name.lstrip("/"), image, state, tuple(sorted(labels.items()))))
    return tuple(sorted(dict.fromkeys(found), key=lambda container: container.name))


def _values(line: str) -> List[Any]:
    """Return JSON values that stand one after another; nothing where they do not."""
    decoder, values, place = json.JSONDecoder(), [], 0
    line = line.strip()
    while place < len(line):
        try:
            value, end = decoder.raw_decode(line, place)
        except (ValueError, RecursionError):
            return []
        values.append(value)
        place = end + 1 if line[end : end + 1] == " " else end
        if place == end and end < len(line):
            return []
    return values


def _images(text: Found[str]) -> Found[Tuple[Image, ...]]:
    """Read `REPOSITORY TAG ID DIGEST SIZE`; an image without a name goes by its digest or id."""
    if not isinstance(text, str):
        return Unknown(text.reason)
    found: List[Image] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        words = line.split(None, 4)
        if (
            len(words) != 5
            or not _DIGEST.fullmatch(words[2])
            or not (words[3] == "<none>" or _DIGEST.fullmatch(words[3]))
        ):
            return Unknown(f"docker images: {shown(line)} is not understood")
        repository, tag, identity, digest, size = words
        if repository == "<none>":
            reference = identity
        elif tag == "<none>":
            reference = f"{repository}@{digest}"
        else:
            reference = f"{repository}:{tag}"
        match = _SIZE.fullmatch(size.strip())
        count = int(float(match[1]) * _UNITS[match[2]]) if match else None
        found.append(Image(reference, identity, None if digest == "<none>" else digest, count))
    return tuple(sorted(dict.fromkeys(found), key=lambda image: (image.reference, image.id)))


def _toolkit(text: Found[str]) -> Found[str]:
    """Read `nvidia-ctk --version`, or that of nvidia-container-cli, which is older."""
    if not isinstance(text, str):
        return text
    found = re.search(r"(?m)(?:CLI version|^(?:cli-)?version:) v?([0-9]{1,4}(?:\.[0-9]{1,4}){1,2}[\w.~+-]*)\s*$", text)
    return found[1] if found else Unknown(f"the container toolkit's version: {shown(text)} is not understood")


def _programs(text: Found[str]) -> Found[Tuple[str, ...]]:
    if not isinstance(text, str):
        return text
    words = tuple(text.split())
    odd = next((word for word in words if not _PROGRAM.fullmatch(word)), None)
    return words if odd is None else Unknown(f"the container toolkit's programs: {shown(odd)} is not understood")


def _devices(text: Found[str]) -> Found[Tuple[str, ...]]:
    """Read `FILE:kind: KIND` and `FILE:name: NAME` of CDI specifications; a file has one kind."""
    if not isinstance(text, str):
        return text
    kinds: Dict[str, str] = {}
    found: List[Tuple[str, str]] = []
    for line in text.split("\n"):
        match = _CDI.fullmatch(line)
        if match is None and line:
            return Unknown(f"the CDI specifications: {shown(line)} is not understood")
        if match is not None and match[2] == "kind":
            kinds[match[1]] = match[3]
        elif match is not None:
            found.append((match[1], match[3]))
    return tuple(sorted({f"{kinds[file]}={name}" for file, name in found if file in kinds}))


def _cdi_folders(info: Mapping[str, Any]) -> Found[Tuple[str, ...]]:
    if "CDISpecDirs" not in info:
        return Absent("docker info does not report CDISpecDirs, new in 25.0")
    return _list(info["CDISpecDirs"], "CDISpecDirs")
