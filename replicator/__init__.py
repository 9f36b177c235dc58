"""Copies regional clusters into aggregate clusters on Spark, exactly once, and maps every offset."""
