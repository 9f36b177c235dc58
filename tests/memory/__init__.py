"""The stores in memory: the whole behaviour of the ports for simulations and tests, nothing outside the process."""
