"""Lost devices of nodes, and their leaf cells."""
