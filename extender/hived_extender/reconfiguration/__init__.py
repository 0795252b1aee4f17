"""Another configuration taken up without a restart, and a plan of its effects beforehand."""
