"""Metrics for Prometheus: collected from Redis, written as text, served over HTTP.

May import: audit/ and what is below it. Begin with collect.py.
"""
