"""Everything that is a job: pods, job objects, gangs and quotas as values."""
