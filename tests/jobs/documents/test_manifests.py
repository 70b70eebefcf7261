"""Which document of a file is the job: several documents as YAML has them, and files that are not a list of objects."""

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.hosts.inventory.schema.faults import Faults
from taco_launch.jobs.documents.manifests import read

JOB = "kind: MPIJob\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    "text", [JOB, f"---\n{JOB}", f"%YAML 1.1\n---\n{JOB}...\n", f"# a\n\n---\n{JOB}---\n", f"---\n# none\n---\n{JOB}"]
)
def test_one_document(text: str) -> None:
    assert read(text, Faults("f")) == ({"kind": "MPIJob", "metadata": {"name": "a"}}, ())


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("command: [a]\n---\ncommand: [b]\n", 2, "a second YAML document starts here"),
        (f"{JOB}---\nkind: [\n", 5, "invalid YAML"),
        (
            "{{- if .Values.gpu }}\nkind: MPIJob\n",
            1,
            "  line 1 column 2: '{{- if .Values.gpu }}': a key has to be text: if this is a template, render it first",
        ),
        (
            "kind: Service\n---\nkind: '{{x}}'\n",
            2,
            "none of the file's objects is an MPIJob, PyTorchJob, TrainJob or Volcano Job: Service, {{x}}",
        ),
    ],
)
def test_what_is_not_one_job(text: str, line: int, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(text, Faults("f"))
    assert f"line {line} column " in str(caught.value)
    assert problem in str(caught.value)


WRAPPED = """kind: AppWrapper
metadata: {name: w}
spec:
  components:
  - template:
      kind: PyTorchJob
      metadata: {name: a}
      spec: {pytorchReplicaSpecs: 1}
"""


def test_a_job_within_another_object() -> None:
    faults = Faults("f")
    job, others = read(WRAPPED, faults)
    assert (job["kind"], others) == ("PyTorchJob", ("AppWrapper w",))
    assert faults.places["spec", "pytorchReplicaSpecs"].line == 8


@pytest.mark.parametrize(
    "text",
    [
        WRAPPED.replace("PyTorchJob", "TFJob"),
        "kind: Policy\nspec: {match: [{kind: MPIJob}]}\n",
        "kind: List\nx: {kind: MPIJob}\n",
    ],
)
def test_another_object_without_a_job(text: str) -> None:
    assert read(text, Faults("f"))[0]["kind"] in ("AppWrapper", "Policy", "List")


def test_several_jobs_within_another_object() -> None:
    inside = WRAPPED.partition("  - template:")[2]
    with pytest.raises(SpecError, match="the file has 2 jobs: PyTorchJob a, PyTorchJob a"):
        read(f"{WRAPPED}  - template:{inside}", Faults("f"))
