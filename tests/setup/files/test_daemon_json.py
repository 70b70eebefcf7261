"""daemon.json: what is merged into its text, what stays as it is, and what is refused with its place."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.host.hosts import DockerEngine
from taco_launch.setup.files.daemon_json import (
    RELOADED,
    MergedConfig,
    NotOursError,
    conflict,
    merge,
    read,
    restarts,
    taken_back,
    wanted,
)

MIRRORS = "registry-mirrors"
# json names the comma itself since 3.13, and before that what follows it
TRAILING_COMMA = "line 2 column 9: " if sys.version_info >= (3, 13) else "line 3 column 1: "
_NAMES = st.sampled_from(
    ["a", "b", "data-root", "log-opts", MIRRORS, "insecure-registries", "runtimes", 'q"', "ü", "x\\"]
)
_SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "https://m/", '"', "\n", "ü"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=6
)
_OBJECTS = st.dictionaries(_NAMES, _VALUES, max_size=5)


def changed(**before: Any) -> str:
    return json.dumps(before, indent=4) + "\n"


def test_other_keys_keep_their_order_and_their_indent() -> None:
    text = '{\n\t"debug" : true ,\n\t"dns":[ "10.0.0.1"],\n\t"log-level":"warn"\n}\n'
    assert merge(text, {"data-root": "/data", "debug": False}) == MergedConfig(
        '{\n\t"debug": false,\n\t"dns": [\n\t\t"10.0.0.1"\n\t],\n\t"log-level": "warn",\n\t"data-root": "/data"\n}\n',
        ("data-root",),
        ("debug",),
        '{"data-root": {"is": "/data"}, "debug": {"is": false, "was": true}}',
    )


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", '{\n  "debug": true\n}\n'),
        (" \n\t\n", '{\n  "debug": true\n}\n'),
        ("{}", '{\n  "debug": true\n}\n'),
        ('{"a": "\\ud800"}', '{\n  "a": "\\ud800",\n  "debug": true\n}\n'),
        ('{"a": "ü"}', '{\n  "a": "ü",\n  "debug": true\n}\n'),
    ],
)
def test_a_key_is_added_to_those_that_are_there(text: str, after: str) -> None:
    assert merge(text, {"debug": True}).text == after


def test_nothing_to_do_leaves_the_text_alone() -> None:
    text = '{"registry-mirrors": [ "https://b/", "https://a" ],   "debug":true }'
    assert merge(text, {MIRRORS: ["https://a/", "https://b"], "debug": True}) == MergedConfig(text)
    assert merge("", {}) == MergedConfig("")


def test_entries_are_added_to_those_of_others() -> None:
    text = changed(**{MIRRORS: ["https://theirs"], "insecure-registries": []})
    done = merge(text, {MIRRORS: ["https://ours", "https://theirs/"], "insecure-registries": ["r:5000"]})
    assert json.loads(done.text) == {MIRRORS: ["https://theirs", "https://ours"], "insecure-registries": ["r:5000"]}
    assert done.text.startswith(
        '{\n    "registry-mirrors": [\n        "https://theirs",\n        "https://ours"\n    ],\n'
    )
    assert done.changed == (MIRRORS, "insecure-registries")


def test_other_lists_are_replaced_and_objects_are_merged() -> None:
    text = changed(dns=["1.1.1.1"], runtimes={"kata": {"path": "kata"}, "nvidia": {"path": "old", "args": []}})
    done = merge(text, {"dns": ["2.2.2.2"], "runtimes": {"nvidia": {"path": "new"}}})
    assert json.loads(done.text) == {
        "dns": ["2.2.2.2"],
        "runtimes": {"kata": {"path": "kata"}, "nvidia": {"path": "new", "args": []}},
    }


def test_true_is_not_one() -> None:
    assert merge('{"debug": 1}', {"debug": True}).changed == ("debug",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "line 1 column 1: not an object, which starts with '{'"),
        ("3", "line 1 column 1: not an object, which starts with '{'"),
        ('{\n  "a": 1,\n}\n', TRAILING_COMMA),
        ('{\n  // mirrors\n  "a": 1\n}\n', "line 2 column 3: "),
        ('{"a": 1} {}', "line 1 column 10: Extra data"),
        ("{'a': 1}", "line 1 column 2: "),
        ('{"a": NaN}', "line 1 column 7: NaN is not valid JSON"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', 'line 3 column 2: the key "a" appears twice'),
        ('{"a": [{"b": 1}, {"c": {"d": 1,\n  "d": 2}}]}', 'line 2 column 3: the key "d" appears twice'),
        ('{"a": 1, "\\u0061": 2}', 'line 1 column 2: the key "a" appears twice'),
        ("[" * 100000, "line 1 column 1: nested too deep"),
    ],
)
def test_what_is_no_object_of_json_is_refused_with_its_place(text: str, message: str) -> None:
    for refuses in (lambda: read(text), lambda: merge(text, {"a": 1}), lambda: conflict(text, {}, "dockerd")):
        with pytest.raises(NotOursError) as raised:
            refuses()
        assert str(raised.value).startswith(message)


def test_a_key_may_be_in_many_objects_once() -> None:
    assert read('{"a": [{"x": 1}, {"x": 2}], "x": {"x": {"x": 1}}}')


@pytest.mark.parametrize(
    ("text", "keys", "command", "told"),
    [
        ('{\n  "hosts": []\n}', {}, "/usr/bin/dockerd -H fd://", 'line 2 column 3: the key "hosts" and dockerd\'s own flag -H set'),
        ("", {"data-root": "/d"}, "dockerd --data-root=/e", 'the key "data-root" and dockerd\'s own flag --data-root=/e set'),
        ("", {"data-root": "/d"}, "dockerd -g /e", 'the key "data-root" and dockerd\'s own flag -g set'),
        ("", {MIRRORS: []}, "dockerd --registry-mirror https://m", 'the key "registry-mirrors" and dockerd\'s own flag'),
        ("", {"debug": True}, "dockerd -D", 'the key "debug" and dockerd\'s own flag -D set'),
    ],
)  # fmt: skip
def test_what_a_flag_sets_too_is_told(text: str, keys: dict[str, Any], command: str, told: str) -> None:
    assert (conflict(text, keys, command) or "").startswith(told)


def test_flags_of_other_keys_and_runtimes_are_no_conflict() -> None:
    command = "/usr/bin/dockerd -H fd:// --containerd=/run/c.sock --add-runtime=x=/y --log-opt max-size=1m"
    assert conflict('{"runtimes": {}, "log-level": "warn"}', {"data-root": "/d", "debug": True}, command) is None


def test_what_an_inventory_asks_for() -> None:
    engine = DockerEngine(
        mirrors=("https://m",),
        insecure_registries=("r:5000",),
        data_root="/data",
        settings=(("live-restore", "true"), ("log-opts", '{"max-size": "10m"}')),
    )
    assert wanted(engine) == {
        "live-restore": True,
        "log-opts": {"max-size": "10m"},
        MIRRORS: ["https://m"],
        "insecure-registries": ["r:5000"],
        "data-root": "/data",
    }
    assert wanted(DockerEngine()) == {}
    assert {MIRRORS, "insecure-registries", "live-restore", "runtimes", "default-runtime"} < RELOADED
    assert "data-root" not in RELOADED
    assert restarts("data-root", "", '{"data-root": "/a"}')
    assert not restarts("runtimes", "", '{"runtimes": {}}')


@pytest.mark.parametrize(
    ("before", "after", "restart"),
    [
        ("", '{"features": {"cdi": true}}', True),
        ('{"features": {"cdi": true}}', '{"features": {"cdi": false}}', True),
        ('{"features": {"cdi": true}}', '{"features": {"cdi": true, "buildkit": true}}', False),
        ("", '{"features": {"buildkit": true}}', False),
    ],
)
def test_the_feature_that_an_engine_makes_ready_for_as_it_starts(before: str, after: str, *, restart: bool) -> None:
    assert restarts("features", before, after) == restart


def test_what_others_changed_since_is_not_taken_back() -> None:
    done = merge(
        changed(debug=False, **{MIRRORS: ["https://theirs"]}),
        {"debug": True, "data-root": "/d", "bip": "10.9.0.1/24", MIRRORS: ["https://ours"]},
    )
    now = json.loads(done.text)
    now["data-root"] = "/moved"
    now[MIRRORS].append("https://later")
    del now["bip"]
    assert json.loads(taken_back(json.dumps(now), done.added)) == {
        "debug": False,
        MIRRORS: ["https://theirs", "https://later"],
        "data-root": "/moved",
    }


def test_what_others_took_out_since_does_not_come_back() -> None:
    done = merge(
        changed(runtimes={"kata": {}}, **{MIRRORS: ["https://theirs"]}), {"runtimes": {"x": 1}, MIRRORS: ["y"]}
    )
    now = {"runtimes": {"x": 1}, MIRRORS: ["y"]}
    assert json.loads(taken_back(json.dumps(now), done.added)) == {"runtimes": {}, MIRRORS: []}


@given(_OBJECTS, _OBJECTS, st.sampled_from([None, 0, 2, 4, "\t"]), st.booleans())
def test_merging_by_any_means(before: dict[str, Any], keys: dict[str, Any], indent: Any, ascii_only: bool) -> None:
    text = json.dumps(before, indent=indent, ensure_ascii=ascii_only)
    done = merge(text, keys)
    after = json.loads(done.text)
    assert [*after] == [*before, *(key for key in keys if key not in before)]
    assert all(after[key] == before[key] for key in before if key not in keys)
    assert set(done.keys) == {key for key in after if key not in before or after[key] is not before[key]} - {
        key for key in before if json.dumps(after[key], sort_keys=True) == json.dumps(before[key], sort_keys=True)
    }
    assert merge(done.text, keys) == MergedConfig(done.text)


@given(_OBJECTS, _OBJECTS, _OBJECTS)
def test_what_was_put_in_can_be_taken_out(before: dict[str, Any], first: dict[str, Any], then: dict[str, Any]) -> None:
    one = merge(json.dumps(before), first)
    two = merge(one.text, then)
    added = f"{one.added}\n{two.added}\n"
    assert json.loads(taken_back(two.text, added)) == before
