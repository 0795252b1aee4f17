"""Judges the certificate of a push: it has to be about these two texts, and be what the cluster demands.

The author of a push has made the certificate, so it counts as their word. These are checked: the hashes of both texts,
the demands of the configuration in force, and the promises, which are judged anew by the figures.
"""

import msgspec

from hived_config.settings import Demand, OnFailure
from hived_extender.api.certificates import PERCENT, REPORTED, SIZE_LIMIT, Certificate, CertifiedTrace
from hived_extender.reconfiguration.versions import digest

REFUSED_SHOWN = 3
"""Broken promises that a refusal names."""


def why_not(certificate: Certificate | None, demand: Demand | None, in_force: str, pushed: str) -> str:
    """The reason for refusing a text after another one (rule 33.5); "" if it may come into force.

    Parameters
    ----------
    certificate : that of the push, if it has one
    demand : that of the configuration in force, if it has one
    in_force, pushed : the two texts
    """
    if certificate is None:
        return "" if demand is None or pushed == in_force else f"this cluster takes no push without {_wanted(demand)}"
    return (
        _misshapen(certificate)
        or _stale(certificate, digest(in_force), digest(pushed))
        or ("" if demand is None else _unmet(certificate, demand))
    )


def not_demanded(trace: CertifiedTrace, demand: Demand) -> str:
    """The reason why a certificate of a trace is not the demanded one, whatever its result; "" if it may be."""
    is_other_trace = bool(demand.trace) and (trace.days > 0 or trace.name != demand.trace)
    if trace.days < demand.days or is_other_trace:
        found = f"{_days(trace.days)} of record" if trace.days else f"the trace {trace.name}"
        return f"the certificate is of {found}, and this cluster takes no push without {_wanted(demand)}"
    if demand.sha256 and trace.sha256 != demand.sha256:
        return (
            f"the certificate is of a trace with another SHA-256 than {demand.sha256}, which this cluster demands: "
            f"push with the very file, as {remedy(demand)}"
        )
    return ""


def remedy(demand: Demand) -> str:
    """The options with which a push brings the certificate that is demanded."""
    what = f"{demand.days}d" if demand.days else demand.trace
    return f"--certify {what}" + ("" if demand.percent == PERCENT else f" --certify-percent {demand.percent:g}")


def _wanted(demand: Demand) -> str:
    what = f"{_days(demand.days)} of its record" if demand.days else f"the trace {demand.trace}"
    return f"a certificate of {what}: push with {remedy(demand)}"


def _days(count: float) -> str:
    return "a day" if count == 1 else f"{count:g} days"


def _misshapen(certificate: Certificate) -> str:
    size = len(msgspec.json.encode(certificate))
    if size > SIZE_LIMIT or len(certificate.vcs) > REPORTED:
        return (
            f"the certificate has {size} bytes and {len(certificate.vcs)} virtual clusters; at most {SIZE_LIMIT} and "
            f"{REPORTED} are kept"
        )
    words = [certificate.trace.name, certificate.version, certificate.trace.first, certificate.trace.last]
    if not all(word.isprintable() for word in (*words, *(one.vc for one in certificate.vcs))):
        return "the certificate has words that would not show as they are: make it with hived config push --certify"
    return ""


def _stale(certificate: Certificate, in_force: str, pushed: str) -> str:
    again = "certify again with --certify"
    if certificate.new_sha256 != pushed:
        return f"the certificate is about another configuration than the one that is pushed: {again}"
    if certificate.old_sha256 != in_force:
        return f"the certificate compares with a configuration that is not in force any more: {again}"
    return ""


def _unmet(certificate: Certificate, demand: Demand) -> str:
    if reason := not_demanded(certificate.trace, demand):
        return reason
    failures = certificate.failures(demand.percent)
    if failures and demand.on_failure is OnFailure.REFUSE:
        shown = "; ".join(failures[:REFUSED_SHOWN])
        more = f"; and {len(failures) - REFUSED_SHOWN} more" if len(failures) > REFUSED_SHOWN else ""
        return (
            f"the certificate says that promises would be broken: {shown}{more}. This cluster refuses that (key "
            "certify, onFailure: refuse): leave these virtual clusters the cells that they have, or give them more"
        )
    return ""
