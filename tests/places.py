"""Where things are that tests read beside the packages."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The checkout."""

SHARED = ROOT.parent / "shared"
"""Recorded decisions and the lab beside the checkout; not everybody has them."""
