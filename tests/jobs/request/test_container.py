"""Which container a job gets: its image, its data and /dev/shm over the inventory's; and what is refused, and how."""

import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError, UsageError
from taco_launch.core.model.host.hosts import Container, DataSet, Host, Inventory
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory.load import parse
from taco_launch.jobs.request.container import container_of

BASE = Container("train:1", mounts=(("/nas", "/nas", "ro"),))
SETS = (DataSet("imagenet", "/mnt/nas/x", mode="ro"), DataSet("scratch", "/mnt/scratch"))
ROOTS = (("/srv", "ro"), ("/mnt/my disk", "rw"))
HERE = Inventory("c", "h", (Host("h", "h"),), BASE, source="i.yaml", data=SETS, data_roots=ROOTS)
NO_ROOTS = replace(HERE, data_roots=())
LINE = 'data_roots: [/srv, {path: "/mnt/my disk", mode: rw}]'
WORDS = st.lists(st.sampled_from(["/", "a", "..", ".", ":", "ro", "imagenet", " ", ",", "/data", "\0"]), max_size=7)


def of(**fields: object) -> Container:
    found = container_of(JobRequest(**fields), HERE)  # type: ignore[arg-type]
    assert found is not None
    return found


def problem(**fields: object) -> str:
    with pytest.raises((UsageError, SpecError)) as caught:
        of(**fields)
    return str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image": "train:1"},
        {"image": "docker.io/library/train:1"},
        {"worker_image": "train:1"},
        {"data": ("/nas:/nas:ro",)},
        {"shm_size": "32g"},
    ],
)
def test_what_the_inventory_has_is_its_own_container(fields: dict[str, object]) -> None:
    assert of(**fields) == BASE


def test_another_image_is_a_variant_whose_source_is_looked_for() -> None:
    found = of(image="mine:2", worker_image="mine:2")
    assert (found.image, found.source, bool(found.variant)) == ("mine:2", "auto", True)
    assert of(image="mine:2", image_from="controller").source == "controller"
    assert found.mounts == BASE.mounts


def test_data_by_path_and_by_name() -> None:
    found = of(data=("/srv/x:/x", "imagenet:/data", "scratch:/tmp/s:ro"))
    assert found.data == (("/srv/x", "/x", "ro"),)
    assert found.mounts == (*BASE.mounts, ("/mnt/nas/x", "/data", "ro"), ("/mnt/scratch", "/tmp/s", "ro"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"data": ("/a/../etc:/x",)}, "  data: '/a/../etc:/x': a path here must not contain '.' or '..'"),
        ({"data": ("/:/x",)}, "belongs to the host"),
        ({"data": ("/etc/ssh:/x:ro",)}, "belongs to the host"),
        ({"data": ("/var/lib:/x",)}, "belongs to the host"),
        ({"data": ("/a",)}, "HOST_PATH:PATH"),
        ({"data": ("/a:/x:rx",)}, "HOST_PATH:PATH"),
        (
            {"data": ("/a:/",)},
            "the container's / comes from the image (mount it on another folder, such as /:/host:ro)",
        ),
        (
            {"data": ("/a:/run/taco-launch/x",)},
            "  data: '/a:/run/taco-launch/x': this path is reserved for set-up's own mounts (reserved: /var/lib/taco-launch, /run/taco-launch, /etc/hosts, /etc/ssh/ssh_config)",
        ),
        ({"data": ("imagnet:/x",)}, "did you mean 'imagenet'"),
        ({"data": ("imagenet",)}, "NAME:PATH"),
        ({"data": ("imagenet:/x:rw",)}, "read only"),
        ({"data": ("/srv/a:/x", "/srv/b:/x")}, "/x has /srv/a already"),
        ({"shm_size": "32 GB"}, "must be a size"),
        ({"image": "a b"}, "is not an image"),
        ({"image": "https://reg:5000/a:1"}, "no scheme such as https:// in front (did you mean reg:5000/a:1?)"),
        ({"image": "reg.io/Team/A:V1"}, "NAME is in lower case (did you mean reg.io/team/a:V1?)"),
        ({"image": "a:1", "image_from": "x"}, "registry, controller"),
        ({"image_from": "controller"}, "no image is named"),
        ({"image": "a:1", "worker_image": "b:1"}, "one image"),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, object], words: str) -> None:
    assert words in problem(**fields)


@pytest.mark.parametrize(
    ("data", "mode"),
    [
        ("/srv:/x", "ro"),
        ("/srv/:/x", "ro"),
        ("/srv/a/b:/x", "ro"),
        ("/srv/a:/x:ro", "ro"),
        ("/mnt/my disk:/x", "rw"),
        ("/mnt/my disk/a:/x:rw", "rw"),
        ("/mnt/my disk/a:/x:ro", "ro"),
    ],
)
def test_a_folder_below_a_root_is_read_only_unless_the_root_says_rw(data: str, mode: str) -> None:
    ((source, inside, found),) = of(data=(data,)).data
    assert (source, inside, found) == (data.partition(":")[0].rstrip("/"), "/x", mode)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            "/srv2:/x",
            f"/srv2 is outside the folders that jobs may mount: i.yaml has {LINE} (write there: {LINE[:-1]}, /srv2])",
        ),
        ("/mnt:/x:rw", f"(write there: {LINE[:-1]}, {{path: /mnt, mode: rw}}])"),
        ("/srv/../srv2:/x", "a path here must not contain '.' or '..'"),
        (
            "/srv/a:/x:rw",
            f"jobs can only read /srv: i.yaml has {LINE} (leave :rw out, or write there: {LINE.replace('/srv', '{path: /srv, mode: rw}')})",
        ),
    ],
)
def test_what_no_root_allows_is_refused_with_the_line_that_allows_it(data: str, words: str) -> None:
    assert words in problem(data=(data,))
    assert yaml.safe_load(LINE) == {"data_roots": ["/srv", {"path": "/mnt/my disk", "mode": "rw"}]}


PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/a b", "/a/é", '/a"b', "/#", "/a}", "/a/{b", "/a\\"])


@given(st.dictionaries(PATHS, st.sampled_from(["ro", "rw"]), max_size=3), PATHS, st.sampled_from(["", ":ro", ":rw"]))
def test_the_line_to_write_is_one_that_allows_the_job(roots: dict[str, str], path: str, mode: str) -> None:
    asked, here = JobRequest(data=(f"{path}:/x{mode}",)), replace(HERE, data_roots=tuple(roots.items()))
    try:
        container_of(asked, here)
    except SpecError as error:
        line = error.faults[0].hint.partition("write there: ")[2]
        allowing = parse(f"cluster: c\nhosts: {{h: {{}}}}\ncontainer: {{image: t}}\n{line}\n".encode(), "i.yaml")
        assert container_of(asked, allowing) is not None


def test_without_roots_a_job_mounts_what_the_inventory_itself_names() -> None:
    found = container_of(JobRequest(data=("/nas:/nas:ro", "scratch:/x:rw")), NO_ROOTS)
    assert found is not None
    assert (found.data, found.mounts) == ((), (*BASE.mounts, ("/mnt/scratch", "/x", "rw")))
    with pytest.raises(SpecError) as caught:
        container_of(JobRequest(data=("/nas:/elsewhere:ro",)), NO_ROOTS)
    assert "mount: i.yaml has no data_roots (write there: data_roots: [/nas])" in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        of(image="a b", data=("/a",), shm_size="x")
    assert len(caught.value.faults) == 3


def test_without_a_container_there_is_no_image() -> None:
    nowhere = Inventory("c", "h", (Host("h", "h"),))
    assert container_of(JobRequest(), nowhere) is None
    with pytest.raises(UsageError, match="image: requires a container, and the inventory has none"):
        container_of(JobRequest(image="a:1"), nowhere)


@given(WORDS.map("".join))
def test_whatever_is_written_is_a_mount_of_plain_paths_or_an_error(text: str) -> None:
    try:
        found = container_of(JobRequest(data=(text,)), replace(HERE, data_roots=(("/a", "rw"), ("/data", "ro"))))
    except SpecError:
        return
    assert found is not None
    for source, _inside, mode in found.data:
        assert source.split("/")[1] in ("a", "data")
        assert mode == "ro" or source.split("/")[1] == "a"
    for source, inside, mode in (*found.data, *found.mounts):
        assert re.fullmatch(r"/[^:,\x00]*", source)
        assert not {"..", "."} & {*source.split("/"), *inside.split("/")}
        assert inside != "/"
        assert mode in ("ro", "rw")
