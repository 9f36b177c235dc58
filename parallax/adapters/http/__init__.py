"""HTTP as Parallax serves it: one server for REST and status pages, with a bound for all that callers send."""
