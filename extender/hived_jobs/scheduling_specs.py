"""The scheduling spec that an annotation of a job file has, and the words that nearly mean something to hived."""

from collections.abc import Callable, Mapping

from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.misspelt import OF_PODS, odd_words
from hived_jobs.documents import Section

_OLD_SPELLINGS = {"leafCellType": "gpuType", "leafCellNumber": "gpuNumber"}


def check_words(metadata: Section) -> None:
    """Warn of the labels and annotations of a pod template that are misspelt, and of unknown fields of its spec.

    Raises UserError, with file, line and place, for a scheduling spec that cannot be read.
    """
    for part in ("labels", "annotations"):
        words = metadata.section(part)
        words.skip()
        for word in words:
            for said in odd_words({}, {word: ""}, OF_PODS):
                words.warn(word, said)
    annotations = metadata.section("annotations")
    if SCHEDULING_SPEC in annotations:
        written_spec(annotations.document(SCHEDULING_SPEC))


def written_spec(section: Section) -> dict[str, object]:
    """The spec of an annotation, in today's spelling; keys that the scheduler does not know become warnings."""
    readers: Mapping[str, Callable[[str], object]] = {
        "virtualCluster": lambda key: section.text(key, ""),
        "priority": lambda key: section.whole(key, None, OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY),
        "pinnedCellId": lambda key: section.text(key, ""),
        "leafCellType": lambda key: section.text(key, ""),
        "leafCellNumber": lambda key: section.whole(key, minimum=1),
        "gangReleaseEnable": lambda key: section.flag(key, False),
        "lazyPreemptionEnable": lambda key: section.flag(key, False),
        "ignoreK8sSuggestedNodes": lambda key: section.flag(key, False),
        "affinityGroup": lambda key: _written_group(section.section(key)),
        "withinCell": lambda key: _written_wish(section, key),
        "elastic": lambda key: section.flag(key, False),
    }
    spelt = {name: _spelling(section, name) for name in readers}
    written = {name: read(spelt[name]) for name, read in readers.items() if spelt[name] in section}
    section.skip(*spelt.values())
    section.warn_unknown()
    return written


def _written_group(group: Section) -> dict[str, object]:
    members = [
        {
            "podNumber": member.whole("podNumber", minimum=1),
            "leafCellNumber": member.whole(_spelling(member, "leafCellNumber"), minimum=1),
        }
        for member in group.sections("members")
    ]
    return {"name": group.text("name"), "members": members}


def _written_wish(section: Section, key: str) -> str | dict[str, str]:
    if not isinstance(section.plain(key), dict):
        return section.text(key, "")
    wish = section.section(key)
    return {name: wish.text(name, "") for name in ("required", "preferred") if name in wish}


def _spelling(section: Section, name: str) -> str:
    """Return the key for `name` in a section: today's, or the one from before HiveD knew of anything but GPUs."""
    old = _OLD_SPELLINGS.get(name, name)
    if old == name or old not in section:
        return name
    if name in section:
        raise section.refuse(old, f"the old spelling of {name}, which is there too; keep one of them")
    return old
