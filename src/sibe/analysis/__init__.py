"""What is made of runs and environments for people to look at."""
