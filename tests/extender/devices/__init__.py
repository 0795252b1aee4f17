"""What is known of devices, and which leaf cells follow to be lost."""
