"""The scheduler's state machine: one state, one lock, and every decision about pods."""
