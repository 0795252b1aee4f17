"""Experiments in the lab's format that need more nodes, or other troubles, than the lab shows to people."""

from pathlib import Path

from hived_lab.demo.experiment import load_experiments

SCENARIOS = load_experiments(Path(__file__).parent)
