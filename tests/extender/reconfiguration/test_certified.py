"""A push may happen if its certificate is about these two texts, and is what the cluster demands."""

import pytest
from msgspec.structs import replace

from hived_config.settings import Demand, OnFailure
from hived_extender.api.certificates import Certificate, CertifiedTrace, CertifiedVc
from hived_extender.reconfiguration.certified import why_not
from hived_extender.reconfiguration.versions import digest

OLD, NEW = "old", "new"
RECORD = CertifiedTrace("record", "f" * 64, 3, days=14)
FILE = CertifiedTrace("jobs.csv", "f" * 64, 3)
GOOD = Certificate(RECORD, digest(OLD), digest(NEW), "1", vcs=(CertifiedVc("a", 3, 10.0, 10.5),), vc_count=1)
WORSE = replace(GOOD, percent=1000.0, vcs=(CertifiedVc("a", 3, 10.0, 100.0),))
DAYS = Demand(days=14)


def test_without_a_demand_no_certificate_is_needed() -> None:
    assert why_not(None, None, OLD, NEW) == ""


def test_the_refusal_names_the_option_that_helps() -> None:
    assert "a certificate of 14 days of its record: push with --certify 14d" in why_not(None, DAYS, OLD, NEW)
    wish = Demand(trace="jobs.csv", percent=25.0)
    assert "push with --certify jobs.csv --certify-percent 25" in why_not(None, wish, OLD, NEW)


def test_a_text_that_is_in_force_already_needs_none() -> None:
    assert why_not(None, DAYS, OLD, OLD) == ""


def test_a_certificate_as_demanded_will_do() -> None:
    assert why_not(GOOD, DAYS, OLD, NEW) == ""
    assert why_not(replace(GOOD, trace=FILE), Demand(trace="jobs.csv", sha256="f" * 64), OLD, NEW) == ""


@pytest.mark.parametrize(
    ("certificate", "demand", "words"),
    [
        (replace(GOOD, old_sha256=digest("older")), None, "not in force any more"),
        (replace(GOOD, new_sha256=digest("newer")), None, "another configuration than the one that is pushed"),
        (replace(GOOD, trace=replace(RECORD, days=13)), DAYS, "is of 13 days of record"),
        (replace(GOOD, trace=FILE), DAYS, "is of the trace jobs.csv"),
        (GOOD, Demand(trace="jobs.csv"), "is of 14 days of record"),
        (replace(GOOD, trace=FILE), Demand(trace="other.csv"), "without a certificate of the trace other.csv"),
        (replace(GOOD, trace=FILE), Demand(trace="jobs.csv", sha256="0" * 64), "a trace with another SHA-256"),
        (WORSE, DAYS, "promises would be broken: a: the mean delay"),
        (replace(GOOD, vcs=GOOD.vcs * 201), None, "at most 32768 and 200 are kept"),
        (replace(GOOD, version="1\n2"), None, "words that would not show"),
    ],
)
def test_others_are_refused(certificate: Certificate, demand: Demand | None, words: str) -> None:
    assert words in why_not(certificate, demand, OLD, NEW)


def test_broken_promises_pass_where_the_cluster_only_warns_or_demands_nothing() -> None:
    assert why_not(WORSE, replace(DAYS, on_failure=OnFailure.WARN), OLD, NEW) == ""
    assert why_not(WORSE, None, OLD, NEW) == ""
