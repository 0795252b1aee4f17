"""Jobs wait as jobs: order, own schedules of virtual clusters, borrowed cells."""
