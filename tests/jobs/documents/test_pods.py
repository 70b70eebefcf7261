"""What a manifest's pods say beside their program: image, volumes, working folder, GPUs."""

import json
from typing import Any

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.jobs.documents.job_file import JobFile, parse, without_container


def manifest(*, worker: dict[str, Any], volumes: list[Any], launcher: dict[str, Any] | None = None) -> bytes:
    def pod(container: dict[str, Any]) -> dict[str, Any]:
        return {"template": {"spec": {"containers": [{"name": "c", **container}], "volumes": volumes}}}

    own = {"command": ["mpirun", "-np", "2", "train"], **(launcher or {})}
    value = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {
            "slotsPerWorker": 1,
            "mpiReplicaSpecs": {"Launcher": pod(own), "Worker": {"replicas": 2, **pod(worker)}},
        },
    }
    return json.dumps(value).encode()  # which is YAML, without anchors


def read(**parts: Any) -> JobFile:
    parts.setdefault("volumes", [])
    return parse(manifest(**parts), "job.yaml", {})


def test_image_folders_and_where_it_starts() -> None:
    volumes = [
        {"name": "data", "hostPath": {"path": "/srv/data/"}},
        {"name": "set", "persistentVolumeClaim": {"claimName": "imagenet"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
    ]
    mounts = [
        {"name": "data", "mountPath": "/data", "readOnly": True},
        {"name": "data", "mountPath": "/more", "subPath": "more"},
        {"name": "set", "mountPath": "/set"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    worker = {"image": "mine:1", "volumeMounts": mounts, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    found = read(
        worker=worker, volumes=volumes, launcher={"image": "mine:1", "workingDir": "/work", "volumeMounts": mounts}
    )
    request = found.request
    assert request.image == "mine:1"
    assert request.data == ("/srv/data:/data:ro", "/srv/data/more:/more", "imagenet:/set")
    assert request.shm_size == f"{64 << 30}b"
    assert request.workdir == "/work"
    assert found.notes == ()


def test_more_gpus_than_ranks_are_named() -> None:
    (note,) = read(worker={"resources": {"limits": {"nvidia.com/gpu": 8}}}).notes
    assert "8 for a worker of 1 ranks" in note


LAUNCHER = "  spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]"
ONE_IMAGE = "taco-launch runs all of a job in one image, and the workers have"
ONLY, ABSOLUTE = "only folders of the hosts", "must be an absolute path"
MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"worker": {"image": "a:1"}, "launcher": {"image": "b:1"}},
            f"{LAUNCHER}.image (line 1): 'b:1': {ONE_IMAGE} a:1",
        ),
        ({"worker": MOUNTED, "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}, f"nfs: {ONLY}"),
        ({"worker": MOUNTED, "volumes": [{"name": "v", "emptyDir": {}}]}, f"emptyDir: {ONLY}"),
        ({"worker": {"volumeMounts": [{"name": "other", "mountPath": "/v"}]}}, "is not a mount"),
        ({"worker": {}, "launcher": {"workingDir": "here"}}, f"{LAUNCHER}.workingDir (line 1): 'here': {ABSOLUTE}"),
    ],
)
def test_what_cannot_be_here_is_refused(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(**parts)
    assert words in str(caught.value)


def test_without_a_container_the_image_is_told_as_not_used() -> None:
    mounts = [{"name": "d", "mountPath": "/srv/d"}, {"name": "d", "mountPath": "/other"}]
    volumes = [{"name": "d", "hostPath": {"path": "/srv/d"}}]
    found = without_container(read(worker={"image": "mine:1", "volumeMounts": mounts}, volumes=volumes))
    assert found.request.image is None
    assert found.request.data == ("/srv/d:/other",)
    assert "image mine:1" in found.notes[-1]


@pytest.mark.parametrize("name", [{}, {"a": 1}])
def test_a_mount_whose_name_is_no_text_is_refused(name: Any) -> None:
    volumes = [{"name": "data", "hostPath": {"path": "/srv"}}]
    with pytest.raises(SpecError, match="is not a mount: it needs mountPath"):
        read(worker={"volumeMounts": [{"name": name, "mountPath": "/data"}]}, volumes=volumes)
