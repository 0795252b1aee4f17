"""The right to use a virtual cluster: from the text of a configuration to an answer for one pod."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.values.specs import MAX_GUARANTEED_PRIORITY
from hived_config.access import (
    Access,
    AccessRules,
    NamespaceEntry,
    VirtualClusterAccess,
)
from hived_config.compare import compare
from hived_config.loader import load_text
from hived_config.selectors import Requirement
from tests.config.sound_file import SOUND, changed, mistakes_of
from tests.property.examples import examples

NAMED = {"kubernetes.io/metadata.name": "x"}
NAMESPACES = "  a:\n    namespaces: {}\n"
CLOSED = """\
access: namespaces
opportunistic: {namespaces: [labs, {matchLabels: {team: blue}}]}
"""
OTHERS = "    namespaces: [nobody]\n"
LIMITED = "[{name: ci, maxPriority: 5}]"
WHOLE = SOUND.replace("physicalCluster:", CLOSED + "physicalCluster:").replace("  b:\n", "  b:\n" + OTHERS)


def rules_of(entries: str, more: str = "", whole: str = WHOLE) -> AccessRules:
    """The rules of the sound file, closed, with these namespaces for virtual cluster a."""
    text = whole.replace("  a:\n", NAMESPACES.format(entries) + more)
    configuration = load_text(text, "f", environ={})
    assert configuration.warnings == ()
    return configuration.rules.access


def open_rules(entries: str, more: str = "") -> AccessRules:
    return rules_of(entries, more, SOUND)


# ---- answers


def test_a_virtual_cluster_is_for_the_namespaces_that_it_lists() -> None:
    rules = rules_of("[labs, ci]")
    assert rules.refusal("labs", {}, "a", 1000) == ""
    assert rules.refusal("evil", {}, "a", 0) == (
        "namespace evil may not use virtual cluster a: have the configuration list it under "
        "virtualClusters.a.namespaces"
    )
    assert rules.refusal("labs", {}, "b", 0).startswith("namespace labs may not use virtual cluster b: ")


def test_everybody_may_use_any_virtual_cluster_where_the_key_is_left_out() -> None:
    rules = open_rules("[labs]")
    assert rules.access is Access.EVERYBODY
    assert rules.refusal("evil", {}, "a", 1000) == rules.refusal("evil", {}, "b", -1) == ""


@pytest.mark.parametrize(
    ("entries", "more", "ceiling"),
    [
        ("[{name: ci, maxPriority: 10}]", "", 10),
        ("[{name: ci, maxPriority: prod}]", "", 100),
        ("[{name: ci, maxPriority: prod}]", "    maxPriority: test\n", 10),
        ("[{name: ci, maxPriority: test}]", "    maxPriority: crit\n", 10),
        ("[{name: ci, maxPriority: test}, {matchLabels: {team: red}, maxPriority: 20}]", "", 20),
        ("[ci]", "    maxPriority: 7\n", 7),
    ],
)
def test_the_lower_ceiling_counts_and_of_several_entries_the_higher_one(entries: str, more: str, ceiling: int) -> None:
    rules, labels = rules_of(entries, more), NAMED | {"team": "red"}
    assert rules.refusal("ci", labels, "a", ceiling) == ""
    text = f"namespace ci may use virtual cluster a up to priority {ceiling}, not {ceiling + 1}"
    assert rules.refusal("ci", labels, "a", ceiling + 1) == text


def test_the_ceiling_of_a_virtual_cluster_holds_for_everybody() -> None:
    rules = open_rules("[labs]", "    maxPriority: 100\n")
    assert rules.refusal("evil", {}, "a", 101) == "namespace evil may use virtual cluster a up to priority 100, not 101"
    assert rules.refusal("evil", {}, "b", 1000) == ""


def test_an_opportunistic_pod_needs_its_virtual_cluster_and_its_name_on_the_list() -> None:
    rules = rules_of("[labs, ci, {matchLabels: {team: blue}}]")
    assert rules.refusal("labs", {}, "a", -1) == ""
    assert rules.refusal("other", NAMED | {"team": "blue"}, "a", -1) == ""
    assert rules.refusal("ci", {}, "a", 0) == ""
    assert rules.refusal("ci", {}, "a", -1) == (
        "namespace ci may not run opportunistically: have the configuration list it under opportunistic.namespaces"
    )
    assert rules.refusal("labs", {}, "b", -1).startswith("namespace labs may not use virtual cluster b")


def test_a_namespace_can_be_opportunistic_only() -> None:
    rules = rules_of("[{name: labs, maxPriority: oppo}]")
    assert rules.refusal("labs", {}, "a", -1) == ""
    text = "namespace labs may use virtual cluster a only opportunistically, not at priority 0"
    assert rules.refusal("labs", {}, "a", 0) == text


@pytest.mark.parametrize(
    ("opportunists", "entries", "more", "is_warned"),
    [
        ("[]", "[{name: labs, maxPriority: oppo}]", "", True),
        ("[ci]", "[ci, {name: labs, maxPriority: oppo}]", "", True),
        ("[labs]", "[{name: labs, maxPriority: oppo}]", "", False),
        ("[]", "[{name: labs, maxPriority: 0}]", "", False),
        ("[{matchLabels: {team: red}}]", "[{name: labs, maxPriority: oppo}]", "", False),
        ("[]", "[{name: labs, maxPriority: oppo}, {matchLabels: {team: red}}]", "", False),
    ],
)
def test_a_namespace_that_may_run_nothing_is_warned_of(
    opportunists: str, entries: str, more: str, is_warned: bool
) -> None:
    rule = f"access: namespaces\nopportunistic: {{namespaces: {opportunists}}}\nphysicalCluster:"
    text = WHOLE.replace(CLOSED + "physicalCluster:", rule).replace("  a:\n", NAMESPACES.format(entries) + more)
    warnings = load_text(text, "f", environ={}).warnings
    said = "opportunistic: found no namespace 'labs', expected it as well: in 'a' it may run opportunistically only"
    assert [said in str(warning) for warning in warnings] == [True] * is_warned


def test_a_virtual_cluster_that_does_not_exist_is_not_to_be_listed() -> None:
    rules = rules_of("[labs]")
    assert rules.refusal("labs", {}, "nope", 0) == "there is no virtual cluster nope"


def test_a_virtual_cluster_without_namespaces_exists() -> None:
    text = WHOLE.replace("  b:\n" + OTHERS, "  b:\n")
    access = load_text(text, "f", environ={}).rules.access
    assert access.refusal("labs", {}, "b", 0).startswith("namespace labs may not use virtual cluster b: ")


def test_nobody_runs_opportunistically_by_an_empty_list() -> None:
    rules = replace(rules_of("[labs]"), opportunistic=())
    assert "may not run opportunistically" in rules.refusal("labs", {}, "a", -1)


@pytest.mark.parametrize(
    ("selector", "labels", "is_chosen"),
    [
        ("matchLabels: {team: red}", {"team": "red"}, True),
        ("matchLabels: {team: red, env: test}", {"team": "red"}, False),
        ("matchExpressions: [{key: team, operator: In, values: [red, blue]}]", {"team": "blue"}, True),
        ("matchExpressions: [{key: team, operator: In, values: [red, blue]}]", {}, False),
        ("matchExpressions: [{key: team, operator: NotIn, values: [red]}]", {"team": "red"}, False),
        ("matchExpressions: [{key: team, operator: NotIn, values: [red]}]", {}, True),
        ("matchExpressions: [{key: team, operator: Exists}]", {"team": ""}, True),
        ("matchExpressions: [{key: team, operator: DoesNotExist}]", {"team": ""}, False),
        ("matchLabels: {team: red}, matchExpressions: [{key: old, operator: DoesNotExist}]", {"team": "red"}, True),
    ],
)
def test_a_selector_chooses_namespaces_by_their_labels(selector: str, labels: dict[str, str], is_chosen: bool) -> None:
    rules = rules_of(f"[{{{selector}}}]")
    assert rules.needs_labels
    assert (rules.refusal("x", NAMED | labels, "a", 0) == "") is is_chosen
    assert rules.default_virtual_cluster("x", NAMED | labels) == ("a" if is_chosen else None)


def test_no_selector_chooses_a_namespace_of_which_nothing_is_known() -> None:
    rules = rules_of("[{matchExpressions: [{key: team, operator: DoesNotExist}]}]")
    assert rules.refusal("x", NAMED, "a", 0) == ""
    assert "may not use" in rules.refusal("x", {}, "a", 0)


def test_labels_are_needed_for_selectors_only() -> None:
    assert not open_rules("[labs]").needs_labels
    assert AccessRules(opportunistic=(NamespaceEntry(requirements=(Requirement("a", "Exists"),)),)).needs_labels


def test_a_long_name_that_no_virtual_cluster_can_have_is_cut_short() -> None:
    assert len(rules_of("[labs]").refusal("evil", {}, "v" * 100_000, 0)) < 400


# ---- the virtual cluster of pods that name none


def access_of(**namespaces: list[NamespaceEntry]) -> AccessRules:
    by_vc = {vc: VirtualClusterAccess(tuple(entries)) for vc, entries in namespaces.items()}
    return AccessRules(Access.NAMESPACES, by_vc)


def test_of_several_virtual_clusters_the_first_or_the_one_called_default_is_the_default() -> None:
    labs = NamespaceEntry("labs")
    assert access_of(b=[labs], a=[labs]).default_virtual_cluster("labs", {}) == "b"
    assert access_of(b=[labs], default=[labs]).default_virtual_cluster("labs", {}) == "default"
    assert access_of(b=[labs], default=[]).default_virtual_cluster("labs", {}) == "b"
    assert access_of(b=[labs]).default_virtual_cluster("other", {}) is None


def test_a_name_goes_before_a_selector() -> None:
    red = NamespaceEntry(requirements=(Requirement("team", "In", ("red",)),))
    rules = access_of(first=[red], second=[NamespaceEntry("labs")])
    assert rules.default_virtual_cluster("labs", {"team": "red"}) == "second"
    assert rules.default_virtual_cluster("other", {"team": "red"}) == "first"


# ---- mistakes

NAMESPACE = "the name of a namespace: at most 63 of a-z, 0-9 and '-'"
A_LABEL = "the name of a label, such as example.com/team"
KEYS = "name, matchLabels, matchExpressions"
OPERATORS = "one of In, NotIn, Exists, DoesNotExist"
PRIORITY = "crit, prod, test, oppo, preemptible or a number from -1 to 1000"
EXPRESSION = "matchExpressions[0]"


def condition(operator: str) -> str:
    return f"{{matchExpressions: [{{key: a, operator: {operator}}}]}}"


@pytest.mark.parametrize(
    ("entry", "place", "found", "expected"),
    [
        ("{}", "", "no name", "name, matchLabels or matchExpressions"),
        ("{name: A_b}", "name", "A_b", NAMESPACE),
        ("{name: }", "name", "nothing", NAMESPACE),
        ("{name: a, matchLabels: {b: c}}", "", "name and matchLabels", "either a name or a selector"),
        ("{matchLabels: {}}", "", "a selector of every namespace", "at least one label, or access: everybody"),
        ("{matchLabels: {'a b': c}}", "matchLabels['a b']", "label 'a b'", A_LABEL),
        ("{matchLabels: [a]}", "matchLabels", "a list", "values of labels by name"),
        (condition("In"), EXPRESSION, "no values", "at least one with In"),
        (condition("Exists, values: [b]"), f"{EXPRESSION}.values", "values", "none with Exists"),
        (condition("Exits"), f"{EXPRESSION}.operator", "Exits", f"{OPERATORS} (did you mean Exists?)"),
        ("{matchExpressions: [{operator: Exists}]}", EXPRESSION, "no key", A_LABEL),
        ("{name: a, maxPriority: 1001}", "maxPriority", "1001", PRIORITY),
        ("{nam: a}", "nam", "unknown key 'nam'", f"one of {KEYS}, maxPriority (did you mean name?)"),
    ],
)
def test_an_entry_that_says_too_little_or_too_much_is_a_mistake(
    entry: str, place: str, found: str, expected: str
) -> None:
    text = WHOLE.replace("  a:\n", NAMESPACES.format(f"[{entry}]"))
    path = f"virtualClusters.a.namespaces[0].{place}".removesuffix(".")
    (mistake,) = mistakes_of(text)
    assert mistake.partition(" ")[2] == f"{path}: found {found}, expected {expected}"


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("access: namespace", ": found namespace, expected namespaces or everybody (did you mean namespaces?)"),
        ("access: [a]", ": found a list, expected namespaces or everybody"),
        ("opportunistic: {}", ": found no namespaces, expected a list of namespaces, [] for none"),
        ("opportunistic: {namespaces: }", ".namespaces: found nothing, expected a list of namespaces, [] for none"),
        ("opportunistic: [a]", ": found a list, expected who may run opportunistically (a mapping)"),
        (
            "opportunistic: {namespaces: [{name: a, maxPriority: 1}]}",
            f".namespaces[0].maxPriority: found unknown key 'maxPriority', expected one of {KEYS}",
        ),
    ],
)
def test_a_rule_that_cannot_be_read_is_a_mistake(line: str, mistake: str) -> None:
    assert mistakes_of(f"{line}\n{SOUND}") == [f"f:1: {line.partition(':')[0]}{mistake}"]


@pytest.mark.parametrize("word", ["namespace", "closed"])
def test_a_misspelt_access_is_the_only_mistake(word: str) -> None:
    text = WHOLE.replace("access: namespaces", f"access: {word}").replace("  a:\n", NAMESPACES.format(LIMITED))
    assert [mistake.partition(", ")[0] for mistake in mistakes_of(text)] == [f"f:1: access: found {word}"]


def test_a_ceiling_of_one_namespace_needs_closed_virtual_clusters() -> None:
    text = changed("  a:\n", "  a:\n    namespaces: [{name: ci, maxPriority: 5}]\n")
    assert mistakes_of(text) == [
        "f:15: virtualClusters.a.namespaces[0].maxPriority: found maxPriority of one namespace while everybody has "
        "access, expected access: namespaces, or maxPriority of the virtual cluster"
    ]


def test_a_closed_virtual_cluster_that_nobody_can_use_is_warned_of() -> None:
    configuration = load_text("access: namespaces\n" + changed("  a:\n", "  a:\n    namespaces: []\n"), "f", environ={})
    assert [(each.path, each.is_warning) for each in configuration.warnings] == [
        ("virtualClusters.a.namespaces", True),
        ("virtualClusters.b", True),
    ]


# ---- differences


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[labs]", "[labs, ci]"),
        ("[labs]", "[{name: labs, maxPriority: 5}]"),
        ("[{matchLabels: {a: b}}]", "[{matchLabels: {a: c}}]"),
    ],
)
def test_another_list_of_namespaces_changes_the_virtual_cluster(old: str, new: str) -> None:
    first, second = (WHOLE.replace("  a:\n", NAMESPACES.format(each)) for each in (old, new))
    changes = compare(load_text(first, "f", environ={}), load_text(second, "f", environ={}))
    assert changes.virtual_clusters.changed == ("a",)
    (told,) = changes.settings
    assert (told.key, told.old != told.new) == ("virtualClusters.a.namespaces", True)


def test_access_and_who_may_be_opportunistic_are_settings() -> None:
    text = WHOLE.replace("  a:\n", NAMESPACES.format("[labs]"))
    changes = compare(load_text(SOUND, "f", environ={}), load_text(text, "f", environ={}))
    told = {each.key: (each.old, each.new, each.needs_restart) for each in changes.settings}
    selector = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]}
    assert told == {
        "access": ("everybody", "namespaces", False),
        "opportunistic.namespaces": (None, [selector, "labs"], False),
        "virtualClusters.a.namespaces": (None, ["labs"], False),
        "virtualClusters.b.namespaces": (None, ["nobody"], False),
    }  # fmt: skip


def test_the_order_of_virtual_clusters_is_told_where_defaults_depend_on_it() -> None:
    one, other = "  a:\n    namespaces: [labs]\n", "  c:\n    namespaces: [{}]\n"
    for name, count in (("labs", 1), ("ci", 0)):
        head, tail = SOUND.split("  a:\n")
        first = load_text(f"{head}{other.format(name)}{one}{tail}", "f", environ={})
        second = load_text(f"{head}{one}{tail}{other.format(name)}", "f", environ={})
        assert [each.key for each in compare(first, second).settings] == ["virtualClusters"] * count


# ---- what holds for all rules

names = st.sampled_from(["ci", "labs", "vision"])
vcs = st.sampled_from(["a", "b", "default"])
priorities = st.integers(-1, 3) | st.just(MAX_GUARANTEED_PRIORITY)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])
requirements = st.builds(Requirement, st.sampled_from(["team", "env"]), operators, st.just(("red",)))
entries = st.builds(NamespaceEntry, names, st.just(()), priorities) | st.builds(
    NamespaceEntry, st.just(""), st.tuples(requirements), priorities
)
clusters = st.dictionaries(vcs, st.builds(VirtualClusterAccess, st.lists(entries, max_size=3).map(tuple), priorities))
all_rules = st.builds(
    AccessRules, st.sampled_from(Access), clusters, st.none() | st.lists(entries, max_size=2).map(tuple)
)
all_labels = st.dictionaries(st.sampled_from(["team", "env"]), st.sampled_from(["red", "blue"]))


def without(entries: tuple[NamespaceEntry, ...], index: int) -> tuple[NamespaceEntry, ...]:
    return (*entries[:index], *entries[index + 1 :])


@settings(max_examples=examples(300), deadline=None)
@given(rules=all_rules, namespace=names, labels=all_labels, vc=vcs, priority=priorities, index=st.integers(0, 2))
def test_without_an_entry_nothing_more_is_allowed(
    rules: AccessRules, namespace: str, labels: dict[str, str], vc: str, priority: int, index: int
) -> None:
    own = rules.virtual_clusters.get(vc, VirtualClusterAccess())
    fewer = msgspec.structs.replace(own, namespaces=without(own.namespaces, index))
    narrower = replace(rules, virtual_clusters={**rules.virtual_clusters, vc: fewer})
    if rules.refusal(namespace, labels, vc, priority):
        assert narrower.refusal(namespace, labels, vc, priority)
    if rules.opportunistic is not None and rules.refusal(namespace, labels, vc, -1):
        narrower = replace(rules, opportunistic=without(rules.opportunistic, index))
        assert narrower.refusal(namespace, labels, vc, -1)


@settings(max_examples=examples(300), deadline=None)
@given(rules=all_rules, namespace=names, labels=all_labels, vc=vcs, priority=priorities, lower=priorities)
def test_a_lower_priority_is_allowed_where_a_higher_one_is(
    rules: AccessRules, namespace: str, labels: dict[str, str], vc: str, priority: int, lower: int
) -> None:
    if 0 <= lower <= priority and not rules.refusal(namespace, labels, vc, priority):
        assert not rules.refusal(namespace, labels, vc, lower)


@settings(max_examples=examples(300), deadline=None)
@given(rules=all_rules, namespace=names, labels=all_labels)
def test_a_default_virtual_cluster_is_one_that_the_namespace_may_use(
    rules: AccessRules, namespace: str, labels: dict[str, str]
) -> None:
    closed = replace(rules, access=Access.NAMESPACES)
    default = closed.default_virtual_cluster(namespace, labels)
    assert rules.default_virtual_cluster(namespace, labels) == default
    usable = [vc for vc in closed.virtual_clusters if closed.ceiling(namespace, labels, vc) is not None]
    assert (default in usable) if usable else default is None


# ---- rights


@pytest.mark.parametrize(
    ("file", "found"),
    [
        (SOUND, "namespaces, and every namespace may use every virtual cluster"),
        (WHOLE, "namespaces, and some are listed by their labels"),
        ("access: namespaces\n" + SOUND, "namespaces, and no virtual cluster lists one"),
    ],
)
def test_rights_are_for_namespaces_that_lists_name(file: str, found: str) -> None:
    assert any(f"rights: found {found}, expected" in each for each in mistakes_of("rights: namespaces\n" + file))


def test_rights_are_given_where_any_list_has_a_namespace() -> None:
    file = "rights: namespaces\naccess: namespaces\nopportunistic: {namespaces: [labs]}\n" + SOUND
    rules = load_text(file.replace("  b:\n", "  b:\n    namespaces: [ci]\n"), "f", environ={}).rules.access
    assert rules.tenants == {"labs", "ci"}
    assert AccessRules().tenants is None
