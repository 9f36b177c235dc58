"""Shards leased to Spark's tasks: planning, claiming, holding, reporting."""
