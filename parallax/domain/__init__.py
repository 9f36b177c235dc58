"""The offset arithmetic: standard library only, no clients, no clocks, no I/O."""
