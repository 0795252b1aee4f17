"""Job objects, one file for each kind."""
