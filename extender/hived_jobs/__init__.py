"""Job files -> pods: `kinds.py` names the kinds, `creation.py` creates plans, `controller.py` looks after them."""
