"""Connections to Redis: addresses, plain sockets, redis-py, failover, tracking.

May import: system/ and what is below it. Begin with redis.py.
"""
