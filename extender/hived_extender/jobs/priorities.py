"""HiveD priorities as people write them, and the PriorityClasses that agree with them."""

from hived.values.errors import UserError
from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_config.access import PRIORITY_WORDS


def parse_priority(text: str) -> int:
    """A priority from one of OpenPAI's words or a number from -1 to 1000. Raises UserError for anything else."""
    if text in PRIORITY_WORDS:
        return PRIORITY_WORDS[text]
    try:
        priority = int(text)
    except ValueError:
        priority = OPPORTUNISTIC_PRIORITY - 1
    if not OPPORTUNISTIC_PRIORITY <= priority <= MAX_GUARANTEED_PRIORITY:
        words, numbers = ", ".join(PRIORITY_WORDS), f"{OPPORTUNISTIC_PRIORITY} to {MAX_GUARANTEED_PRIORITY}"
        raise UserError(f"priority {text!r}: expected {words} or a number from {numbers}")
    return priority


def priority_class_name(priority: int) -> str:
    """The PriorityClass that gives a pod the Kubernetes priority equal to its HiveD priority.

    Kubernetes looks for victims among pods of lower Kubernetes priority only, so the two must agree.
    """
    return "hived-opportunistic" if priority == OPPORTUNISTIC_PRIORITY else f"hived-priority-{priority}"
