"""The Spark application that services run on: its session, queries whose tasks hold long-lived leases, its status."""
