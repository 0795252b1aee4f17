"""Installing hived in a cluster: the manifests of config/deploy with a user's values."""
