"""Effects of the machine carried out."""
