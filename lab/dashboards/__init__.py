"""Grafana dashboards, written to deploy/grafana.

overview       what to look at first: is everything copied, answered and published?
replication    routes and their worst partitions
groups         where groups are primary, moves, and what the sync job publishes
service        requests to the offset services, and the processes themselves
"""
