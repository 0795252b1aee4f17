"""Reading the service's own HTTP answers, for commands."""
