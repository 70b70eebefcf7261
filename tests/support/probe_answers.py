"""Answers of the probe, written by hand for tests."""

from taco_launch.core.facts.text.sections import Section, read


def answer(**told: str | tuple[str, int, str]) -> dict[str, Section]:
    """Return the sections of an answer: name (`_` for the first dot) to stdout, or to stdout, exit code and stderr."""
    text = "N probe 1 1700000000.0\n"
    for word, value in told.items():
        stdout, code, stderr = (value, 0, "") if isinstance(value, str) else value
        name = word.replace("_", ".", 1)
        complaints = "".join(f"N err {line}\n" for line in stderr.splitlines())
        text += f"N begin {name}\n{stdout}\nN end {name} {code}\n{complaints}"
    return read(f"{text}N done 1700000000.1\n".encode())
