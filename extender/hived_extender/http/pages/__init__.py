"""The page for people: cells, virtual clusters, jobs and configurations, as HTML that works without a script."""
