"""Whatever stands in files of Kueue's objects, `hived migrate kueue` never fails with a traceback.

Sound setups are changed at random: values of other types, nulls, huge numbers, quantities of every form, cycles of
cohorts, other names, kinds and texts. Input with a mistake gets its file and line; what passes has no unsound output.
"""

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_config.loader import load_text
from hived_extender.jobs.quotas.tree import read_tree
from tests.cli.migrate.test_migrate_kueue import NODES, Object, flavor, groups, obj, queue, quota

VALUES: tuple[Any, ...] = (
    None,
    "",
    " ",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    [None],
    [[]],
    {"": None},
    "null",
    10**30,
    -(10**400),
    1e308,
    float("nan"),
    float("inf"),
    "1e3",
    "1E3",
    "500m",
    "-5",
    "+7",
    "0.5",
    ".5",
    "5.",
    "1Ki",
    "1Mi",
    "8Ei",
    "9999999999Ei",
    "1n",
    "1u",
    "1k",
    "12e-3",
    "12 Gi",
    "1GiB",
    "0x10",
    "1_000",
    "\u0664",
    "\u00e9t\u00e9",
    "a" * 70,
    "A",
    "a.b",
    "-a",
    "a/b",
    "root",
    "default",
    "..",
    "\u202e",
    "\U0001f600",
    "\x85",
    "yes",
    "2026-11-30",
    "a100",
    "h100",
    "left",
    "right",
    {"a100": 1},
    [1, "a", None],
    "v1beta1",
    "Job",
    "kueue.x-k8s.io/v1",
    "kueue.x-k8s.io/v1beta1",
    "nvidia.com/gpu",
    "cpu",
    "amd.com/gpu",
    "FairSharing",
)
"""In the place of any other value, or as a key."""

TEXTS = (
    "",
    "---\n---\n",
    "null",
    "[]",
    "- 1\n- 2",
    "42",
    "{",
    "a: b: c",
    "\t",
    "a: &a [*a]",
    "a: *b",
    "\ufeff",
    "\x00",
    "kind: List\nitems: null",
    "kind: List\nitems: {}",
    "kind: List\nitems: [null, 1, []]",
    "kind: []",
    "apiVersion: {}",
    "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue",
    "? [a]\n: b",
    "a: 1\na: 2",
    "!!python/object:os.x {}",
    "kind: &k ClusterQueue\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: *k}",
    "%YAML 9.9\n---\na",
    "<<: 1",
    "[" * 300,
    "{a: " * 300,
    "&a a: *a",
    "- &x\n  y: *x",
    "kind: !!binary aGk=",
    "metadata: !!timestamp 2026-01-01",
)
"""Files that are no objects."""


def setup() -> list[Object]:
    """A sound setup with all kinds."""
    return [
        flavor("a100"),
        flavor("h100"),
        obj("Topology", "racks", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}),
        obj("Cohort", "left", {"parentName": "right"}),
        obj("Cohort", "right", {"resourceGroups": groups(h100=quota("8"))}),
        queue("vision", "left", resourceGroups=groups(a100=quota(16, borrowingLimit=4))),
        queue("speech", "right", resourceGroups=groups(h100=[quota("8"), quota("1500m", "cpu")]), stopPolicy="Hold"),
        obj("LocalQueue", "team/main", {"clusterQueue": "vision"}),
        obj("LocalQueue", "other/main", {"clusterQueue": "speech"}),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "p"},
            "value": 5,
        },
    ]


def places(value: Any) -> list[tuple[Any, Any]]:
    """All containers in a value with a key or an index of each."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [pair for key in keys for pair in ((value, key), *places(value[key]))]


def change(dice: random.Random, objects: list[Any]) -> None:
    """Change one place at random."""
    container, key = dice.choice(places(objects) or [(objects, 0)])
    if not objects:
        return
    match dice.randrange(8):
        case 0:
            del container[key]
        case 1 if isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        case 1 | 2 if isinstance(container, dict):
            container[str(dice.choice(VALUES))] = container.pop(key)
        case 3:
            container[key] = [copy.deepcopy(container[key])]
        case 4:
            container[key] = {"spec": copy.deepcopy(container[key])}
        case 5:
            other, name = dice.choice(places(objects))
            container[key] = copy.deepcopy(other[name])
        case _:
            container[key] = copy.deepcopy(dice.choice(VALUES))


def text_of(dice: random.Random) -> str:
    """A file with a few changes, of its values or of its text."""
    if dice.random() < 0.1:
        return dice.choice(TEXTS)
    objects: list[Any] = setup()
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        change(dice, objects)
    text = json.dumps({"kind": "List", "items": objects}) if dice.random() < 0.2 else yaml.safe_dump_all(objects)
    if dice.random() < 0.15:
        at, count = dice.randrange(len(text)), dice.randrange(1, 9)
        text = text[:at] + dice.choice(("", "\n", "  ", ": ", "- ", "'", "{", "\u00a0", "\x07")) + text[at + count :]
    return text


def check(folder: Path, text: str, *, has_nodes: bool) -> int:
    """Run the command; its exit code."""
    file = folder / "kueue.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    nodes = ["--nodes", str(folder / "nodes.json")] if has_nodes else []
    found = CliRunner().invoke(main, ["migrate", "kueue", str(file), "--format", "json", *nodes])
    assert found.exception is None or isinstance(found.exception, SystemExit), (repr(found.exception), text)
    assert found.exit_code in (0, 1), (found.output, text)
    if found.exit_code:
        assert re.search(r"kueue\.yaml(:\d+: .|: .)", found.stderr), (found.stderr, text)
        assert not found.stdout
    else:
        answer = json.loads(found.stdout)
        read_tree(answer["quotaTree"])
        assert not answer["configuration"] or load_text(answer["configuration"], "made", environ={})
    return found.exit_code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.json").write_text(json.dumps({"items": NODES}))
    return tmp_path


def test_the_setup_without_changes_is_sound(folder: Path) -> None:
    assert check(folder, yaml.safe_dump_all(setup()), has_nodes=True) == 0


LABEL = "nodeLabels:\n    nvidia.com/gpu.product: H100"
NAMESPACE = "expected the name of a namespace"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (LABEL, "nodeLabels: text", "spec.nodeLabels: found .*, expected a mapping of labels to texts"),
        (LABEL, "nodeLabels: [[a, b]]", "spec.nodeLabels: found .*, expected a mapping of labels to texts"),
        ("gpu.product: H100", "gpu.product: [H100]", "found .*, expected a text"),
        ("namespace: team", "namespace: '-5'", NAMESPACE),
        ("namespace: team", "namespace: Team", NAMESPACE),
    ],
)
def test_what_changes_have_found_is_told_with_its_line(old: str, new: str, told: str, folder: Path) -> None:
    text = yaml.safe_dump_all(setup())
    assert old in text
    assert check(folder, text.replace(old, new), has_nodes=True) == 1
    found = CliRunner().invoke(main, ["migrate", "kueue", str(folder / "kueue.yaml")])
    assert re.search(rf"kueue\.yaml:[0-9]+: .*{told}", found.stderr), found.stderr


@pytest.mark.parametrize("names", [["-5"], ["vision", "A"], [None]])
def test_a_selector_of_what_is_no_namespace_is_told_at_its_queue(names: list[Any], folder: Path) -> None:
    objects = setup()[:-3]
    selector = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]}
    objects[-1]["spec"]["namespaceSelector"] = selector
    assert check(folder, yaml.safe_dump_all(objects), has_nodes=True) == 1


@pytest.mark.parametrize("text", TEXTS)
def test_a_file_that_is_no_object_is_refused(text: str, folder: Path) -> None:
    assert check(folder, text, has_nodes=False) == 1


@pytest.mark.parametrize("seed", range(4))
def test_no_change_of_a_setup_fails_with_a_traceback(seed: int, folder: Path) -> None:
    dice = random.Random(seed)
    codes = [check(folder, text_of(dice), has_nodes=dice.random() < 0.3) for _ in range(5)]
    assert set(codes) <= {0, 1}
