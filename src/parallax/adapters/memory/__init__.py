"""Full in-memory stores: the same contract, for tests and simulation."""
