"""Compile every kernel ahead of time, the core's and our own: `python -m hived_extender.warm`.

An image build and an impatient user run this module instead of waiting at the first pod. Whatever serves calls
`compile_kernels` first: kube-scheduler does not wait for a compiler.
"""

from collections.abc import Callable

import msgspec

from hived import warm
from hived_extender.pods.node_names import NodeNames


def compile_kernels(tell: Callable[[int, int], None] = lambda ready, total: None) -> int:
    """Compile what is not compiled yet; returns the number of entry kernels. RuntimeError if one was missed.

    `tell` is called now and then with how many of them are ready, and how many there are.
    """
    NodeNames({"node": 0}).mask(msgspec.Raw(b'["node"]'))
    return warm.compile_kernels(lambda: tell(*warm.ready_count())) + warm.count_compiled("hived_extender")


if __name__ == "__main__":
    warm.main(compile_kernels)
