"""Where Kueue is in charge of queues: its admission check, answered by hived."""
