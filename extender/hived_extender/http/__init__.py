"""The HTTP side: who calls, whether they may, what they ask, and the answer."""
