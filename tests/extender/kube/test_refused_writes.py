"""A refused write is tried again later and later, and at once after it was carried out."""

from hived_extender.kube.refused_writes import FIRST_RETRY_S, LONGEST_RETRY_S, Backoff


def test_the_time_doubles_up_to_the_longest() -> None:
    backoff, times = Backoff(), []
    for _ in range(8):
        backoff.wrote(100.0, refused=True)
        times.append(backoff.at_s - 100.0)
    assert times == [FIRST_RETRY_S * 2**number for number in range(6)] + [LONGEST_RETRY_S] * 2


def test_a_write_that_was_carried_out_ends_the_wait() -> None:
    backoff = Backoff()
    backoff.wrote(100.0, refused=True)
    backoff.wrote(101.0, refused=False)
    assert backoff.at_s == 0.0
    backoff.wrote(102.0, refused=True)
    assert backoff.at_s == 102.0 + FIRST_RETRY_S
