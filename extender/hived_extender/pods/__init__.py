"""Reading pods: from their JSON and annotations to what they ask for, and whether they may have it."""
