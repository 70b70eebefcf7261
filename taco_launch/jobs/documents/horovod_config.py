"""A configuration file of `horovodrun --config-file` -> the options that say the same (horovod 0.28, config_parser.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from taco_launch.hosts.inventory.schema.document import OddValue

# A section of the file, and what its keys' options begin with.
_SECTIONS = {
    "params": "",
    "autotune": "autotune-",
    "timeline": "timeline-",
    "stall_check": "stall-check-",
    "library_options": "",
    "logging": "log-",
}
# Switches: the key, whether it is on, and the option; None where that is the default.
_SWITCHES: Mapping[tuple[str, bool], str | None] = {
    ("autotune.enabled", True): "autotune",
    ("autotune.enabled", False): None,
    ("stall_check.enabled", True): None,
    ("stall_check.enabled", False): "no-stall-check",
    ("logging.with_timestamp", True): "log-with-timestamp",
    ("logging.with_timestamp", False): "log-hide-timestamp",
}


def is_config(value: Mapping[str, Any]) -> bool:
    """Return whether a document has sections of such a file, and nothing else."""
    return bool(value) and set(value) <= {*_SECTIONS, "controller"}


def settings(value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the key of each setting, the option of horovodrun that says the same, and its value ("" for a switch)."""
    if isinstance(controller := value.get("controller"), str):
        yield f"controller: {controller}", controller, ""
    for section, begin in _SECTIONS.items():
        inner = value.get(section)
        for key, setting in inner.items() if isinstance(inner, Mapping) else ():
            name = f"{section}.{key}"
            if isinstance(setting, bool):
                option = f"{begin}{key}".replace("_", "-")
                option = option if setting else f"no-{option}"
                switch = _SWITCHES.get((name, setting), option)
                if switch is not None:
                    yield name, switch, ""
            else:
                text = setting.text if isinstance(setting, OddValue) else str(setting)
                yield name, f"{begin}{key}".replace("_", "-"), text
