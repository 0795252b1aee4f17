"""Kueue's admission check, answered by hived where Kueue is in charge of queues."""
