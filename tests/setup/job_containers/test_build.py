"""An image with more packages: what Docker gets, and what is refused before it is asked."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import UsageError
from taco_launch.setup.job_containers.build import BuildRequest, check, dockerfile

TEXTS = st.text(st.sampled_from("ab1:/.-_ ;$`\n\"'&|@=+"), max_size=12)


def test_requirements_and_packages(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("einops\n")
    request = BuildRequest("mine:1", "train:1", str(tmp_path / "r.txt"), ("libsndfile1", "g++=4:12.2.0-3"))
    check(request)
    lines = dockerfile(request).splitlines()
    assert lines[0] == "FROM train:1"
    assert "install -y --no-install-recommends libsndfile1 g++=4:12.2.0-3 &&" in next(
        line for line in lines if "apt-get" in line
    )
    assert lines[-1].startswith("RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install")
    assert "--no-index" not in lines[-1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "say what the image is built from"),
        ({"base": "a", "dockerfile": "b"}, "say what the image is built from"),
        ({"base": "a"}, "nothing to install on top of the image"),
        ({"base": "a", "requirements": "/no/file"}, "there is no such file"),
        ({"dockerfile": "/no/file"}, "there is no such file"),
        (
            {"dockerfile": "/etc/passwd", "apt": ("a",)},
            "cannot be combined with --requirements, --apt or --wheels: the Dockerfile itself defines what is installed",
        ),
        ({"base": "a", "apt": ("x; rm",)}, "not a name of a package"),
        ({"base": "a", "apt": ("x",), "folder": "."}, "add -f DOCKERFILE"),
        ({"base": "a", "apt": ("x",), "wheels": "/etc/passwd"}, "there is no such folder"),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(BuildRequest("mine:1", **fields))  # type: ignore[arg-type]
    assert words in f"{caught.value.message} {caught.value.hint}"


@given(TEXTS, TEXTS, TEXTS)
def test_nothing_that_a_shell_would_obey_gets_into_a_line(tag: str, base: str, package: str) -> None:
    request = BuildRequest(tag, base, apt=(package,))
    try:
        check(request)
    except UsageError:
        return
    text = dockerfile(request)
    assert len(text.splitlines()) == 6
    assert not set("$`;|\"'") & set(text.replace("&&", ""))
