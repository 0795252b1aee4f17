"""The nodes that Kubernetes offers to pods, as the core wants them."""

import numpy as np

from hived_extender.kube_rules.residents import Residents
from hived_extender.machine.offers import Offers
from hived_extender.machine.pods import PodRecord
from tests.core.builders import healthy_state, pod, quota, rack_cluster


def test_one_pod_that_speaks_for_thousands_makes_one_row_of_nodes() -> None:
    topology = healthy_state(rack_cluster(quota("A", {"RACK": 16}), racks=16, nodes=2, gpus=64)).topology
    offers = Offers(topology, (), Residents(topology.node_names), ())
    record = PodRecord("u", "gang", "ns")
    mask = np.arange(32) > 2
    offers.take(record, mask)
    offer = offers.of(pod("gang", members=((2048, 1),), ignore_suggested_nodes=False), [record], exact=record)
    assert offer is not None
    for rows in (offer.nodes, offer.after):
        assert rows.shape == (2048, 32)
        assert rows.strides[0] == 0
    assert (offer.nodes == mask).all()
    assert (offer.after == ~mask).all()
