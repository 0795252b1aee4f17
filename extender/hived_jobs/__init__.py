"""Job files -> pods: `kinds.py` names every kind, one module each; `creation.py` creates what they plan.

`refusals.py` says before that which pods may not have what they ask for.
`records.py` keeps jobs in the cluster, and `controller.py` runs their policies, as `policies.py` decides.
"""
