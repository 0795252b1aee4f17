"""The verdict of a certificate is made of its figures."""

import msgspec
import pytest

from hived_extender.api.certificates import Certificate, CertifiedTrace, CertifiedVc, by_badness

TRACE = CertifiedTrace("jobs.csv", "0" * 64, 3)


def failures(one: CertifiedVc, percent: float = 10.0) -> list[str]:
    return Certificate(TRACE, "a", "b", "1", percent=percent, vcs=(one,), vc_count=1).failures()


@pytest.mark.parametrize(
    ("one", "percent"),
    [
        (CertifiedVc("a", 3, 600.0, 660.0), 10.0),
        (CertifiedVc("a", 3, 0.0, 0.9), 0.0),
        (CertifiedVc("a", 3, 600.0, 1200.0), 100.0),
        (CertifiedVc("a", 3, 600.0, 0.0), 0.0),
    ],
)
def test_a_growth_within_bounds_breaks_nothing(one: CertifiedVc, percent: float) -> None:
    assert failures(one, percent) == []


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (
            CertifiedVc("a", 3, 600.0, 661.0),
            "a: the mean delay of its 3 guaranteed jobs would have been 11 min instead of 10 min (+10%), and 10 % more "
            "is allowed",
        ),
        (
            CertifiedVc("a", 1, 0.0, 5.0),
            "a: the mean delay of its 1 guaranteed job would have been 5 s instead of 0 s, and 10 % more is allowed",
        ),
        (
            CertifiedVc("a", 3, 0.0, 0.0, later=2, later_max_s=36_000.0),
            "a: 2 guaranteed jobs would have started later than in its own cells, by up to 10.0 h",
        ),
        (CertifiedVc("a", 3, 0.0, 0.0, lost=1), "a: 1 guaranteed job would never have started"),
    ],
)
def test_each_broken_promise_is_told_in_words(one: CertifiedVc, text: str) -> None:
    assert failures(one) == [text]


def test_virtual_clusters_with_broken_promises_come_first() -> None:
    vcs = [CertifiedVc("a", 9, 0, 0), CertifiedVc("b", 2, 0, 0, lost=1), CertifiedVc("c", 9, 0, 0)]
    assert [one.vc for one in by_badness(vcs, 10.0)] == ["b", "a", "c"]


def test_a_certificate_comes_back_from_json() -> None:
    made = Certificate(TRACE, "a", "b", "1", vcs=(CertifiedVc("a", 3, 1.5, 2.0),), vc_count=1)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Certificate) == made
    assert b'"newSha256":"b"' in msgspec.json.encode(made)
