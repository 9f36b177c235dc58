"""The storm: faults drawn from a seed, over groups that move, judged by the records alone."""
