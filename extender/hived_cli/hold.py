"""`hived hold`: Hold a job in its queue, so that it does not take its turn."""

from hived_cli.helpers.queueing import keeping_its_place

command = keeping_its_place("hold", "Hold a job in its queue, so that it does not take its turn.")
