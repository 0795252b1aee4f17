"""`hived release`: Let a job that was held take its turn."""

from hived_cli.helpers.queueing import keeping_its_place

command = keeping_its_place("release", "Let a job that was held take its turn.")
