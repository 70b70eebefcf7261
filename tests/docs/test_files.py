"""The files that pages show are valid, and the files that pages name are shown or shipped."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from taco_launch.bench.run.matrix_file import parse
from taco_launch.cli.options import user_config
from taco_launch.jobs.metrics import MONITORING
from tests.docs.pages import (
    ROOT,
    blocks,
    commands,
    consoles,
    environment_of,
    files,
    offline,
    spans,
    text_of,
    working_folder,
    written,
)

pytestmark = pytest.mark.docs

_YAML_NAME = re.compile(r"(?<![\w/~.-])([\w-][\w./-]*\.ya?ml)\b")
# Files of programs that are not taco-launch, which its readers have.
_OF_OTHERS = frozenset({"prometheus.yml"})


def taco_launch(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(offline(*arguments), cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", [page for page in written() if "```yaml" in text_of(page)])
def test_every_yaml_block_is_valid(page: str, tmp_path: Path) -> None:
    folder = working_folder(tmp_path)
    for block in blocks(text_of(page)):
        if block.language != "yaml":
            continue
        file = folder / "checked.yaml"
        file.write_text(block.text, "utf-8")
        document = yaml.safe_load(block.text)
        if block.title.endswith("taco-launch/config.yaml"):
            (folder / ".config" / "taco-launch").mkdir(parents=True)
            (folder / ".config" / "taco-launch" / "config.yaml").write_text(block.text, "utf-8")
            config = user_config.read(folder / ".config" / "taco-launch" / "config.yaml", os.getuid())
            assert (config.inventory, config.output) != (None, None)
            continue
        if "workloads" in document:
            parse(block.text.encode(), page, {})
            continue
        if "data" in document:  # what is added to an inventory
            file.write_text((folder / "hosts.yaml").read_text("utf-8") + block.text, "utf-8")
        if "cluster" in document or "data" in document:
            done = taco_launch(folder, "-i", str(file), "inventory")
        elif "options" in document:
            done = taco_launch(folder, "-i", "hosts.yaml", "run", "--dry-run", "--profile", str(file), "--", "true")
        elif "slurm" in document:
            words = ("-i", "slurm:", "run", "--dry-run", "-f", str(file))
            environ = environment_of(page, tmp_path)
            done = subprocess.run(offline(*words), env=environ, capture_output=True, text=True, check=False)
        elif "command" in document or "apiVersion" in document:
            done = taco_launch(folder, "-i", "hosts.yaml", "run", "--dry-run", "-f", str(file))
        else:
            assert block.title in _OF_OTHERS, f"{page}: of which kind is this block? {block.text[:80]}"
            continue
        assert done.returncode == 0, f"{page}: {done.stderr}"


@pytest.mark.parametrize("page", written())
def test_every_yaml_file_that_a_command_names_is_shown_or_shipped(page: str) -> None:
    text = text_of(page)
    lines = [*commands(text), *(span for span in spans(text) if span.startswith("taco-launch "))]
    made = {words[-1] for line in lines if ">" in (words := line.split())}
    made |= {f"monitoring/{path.name}" for path in MONITORING.iterdir()}  # `export monitoring` writes them
    of_examples = {path.name for path in (ROOT / "taco_launch/examples").glob("*/*.yaml")}
    named = {name for line in lines for name in _YAML_NAME.findall(line)} - made - _OF_OTHERS - of_examples
    assert {name for name in named if name not in files() and not (ROOT / name).exists()} == set()


def test_the_matrix_is_what_its_sweep_shows(tmp_path: Path) -> None:
    folder = working_folder(tmp_path)
    (shown,) = [
        one
        for one in consoles(text_of("docs/guides/sweeps.md"))
        if one.command == "taco-launch bench ladder mine.yaml" and one.output
    ]
    counts = re.match(r"sweep mine-[0-9a-f]{6}: (\d+) cells, (\d+) runs, seed ", shown.output)
    assert counts is not None
    done = taco_launch(
        folder, "bench", "ladder", "mine.yaml", "-H", "localhost:2", "--seed", "0", "--dry-run", "--json"
    )
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]  # with seed 0 as listed
    cells = {(run["workload"], run["variant"], run["ranks"]) for run in runs}
    assert (len(cells), len(runs)) == tuple(map(int, counts.groups()))
    columns = shown.output.partition("\nRANKS ")[2].splitlines()[0].replace(" LINEAR", "").split()
    assert columns[::2] == list(dict.fromkeys(run["variant"] for run in runs))


@pytest.mark.parametrize("page", written())
def test_every_workload_that_stands_alone_is_a_matrix_s(page: str) -> None:
    for span in spans(text_of(page)):
        if span.startswith("{kind: "):
            matrix = f"{{name: a, workloads: {{a: {span}}}, sizes: [1], variants: {{a: }}}}"
            parse(matrix.encode(), page, {})


def test_blocks_in_a_list_are_read() -> None:
    steps = "1. Look:\n\n    ```console\n    $ taco-launch list\n    NAME\n    ```\n"
    assert [(one.command, one.output) for one in consoles(steps)] == [("taco-launch list", "NAME\n")]


def test_file_names_are_found() -> None:
    assert _YAML_NAME.findall(shlex.join(["taco-launch", "-i", "hosts.yaml", "-f", "jobs/a.yml"])) == [
        "hosts.yaml",
        "jobs/a.yml",
    ]
