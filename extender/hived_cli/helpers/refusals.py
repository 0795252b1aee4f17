"""A warning where the configuration refuses pods of other schedulers, and nothing is there that would do it."""

from hived_config.loader import Configuration


def refused_in_vain(configuration: Configuration, option: str) -> str:
    """Return which `foreignDevices` are refused by no webhook, and the option that adds one; "" if the file names none.

    That they are refused is the default, and no reason to warn every cluster without a webhook.
    """
    rules = configuration.rules
    refused = [name for name in rules.refused_in(configuration.cluster) if name in rules.foreign_devices]
    if not refused:
        return ""
    return (
        f"foreignDevices: the admission webhook refuses pods that ask for {', '.join(refused)}, and there is none: "
        f"add {option}; until then such pods are counted as with occupy"
    )
