"""Read what logind removes when a user logs out."""

import re
from typing import Dict, Tuple

from taco_launch.core.facts.text.sections import Files, Sections, answer, files
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown

_NAMES = ("KillUserProcesses", "RemoveIPC")
# where logind.conf(5) looks, the first one first: of two drop-ins of one name, the one in the earlier folder counts
_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
_TRUTHS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def parse_logind(sections: Sections, init: Found[str]) -> Tuple[Found[bool], Found[bool]]:
    """Return RemoveIPC and KillUserProcesses: what the running logind says, or else what its configuration means.

    logind of systemd 219 (CentOS 7) tells only KillUserProcesses. Absent where systemd does not run the host.
    """
    if isinstance(init, str) and init != "systemd":
        absent = Absent(f"init is {init}, not systemd")
        return absent, absent
    section = sections.get("system.logind")
    text = section.stdout if section is not None else ""
    said = re.findall(r"(?m)^b (true|false)$", text)
    # busctl prints a line for each name, and ends at the first one that logind does not know
    if section is not None and section.exit_code == 0 and not re.fullmatch(r"(b (true|false)\n){2}", text):
        wrong = Unknown(f"busctl get-property: {shown(text)} is not understood")
        return wrong, wrong
    found: Dict[str, Found[bool]] = {name: word == "true" for name, word in zip(_NAMES, said)}
    told = files(sections, "system.logind_conf")
    for name in _NAMES:
        if name not in found:
            words = answer(sections, "system.logind")
            why = "logind did not report it" if isinstance(words, str) else words.reason
            found[name] = _configured(told, name, why)
    return found["RemoveIPC"], found["KillUserProcesses"]


def _configured(told: Files, name: str, why: str) -> Found[bool]:
    """Return the last setting of the files; where there is none, the default, which the main file shows as a comment."""
    if told.failed is not None or told.cut is not None:
        return Unknown(why)
    drop_ins = {path: text for folder in reversed(_FOLDERS) for path, text in told.below(f"{folder}/logind.conf.d")}
    main = [told.texts.get(f"{folder}/logind.conf") for folder in _FOLDERS]
    texts = [next((text for text in main if text is not None), ""), *(drop_ins[path] for path in sorted(drop_ins))]
    values = [value for text in texts for value in re.findall(rf"(?m)^[ \t]*{name}[ \t]*=[ \t]*(\S+)[ \t]*$", text)]
    values = values or re.findall(rf"(?m)^#{name}=(\S+)$", texts[0])
    value = _TRUTHS.get(values[-1].lower()) if values else None
    return Unknown(f"{why}, and logind.conf does not set {name}") if value is None else value
