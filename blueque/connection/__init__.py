"""The way to Redis: addresses, our own socket connection, redis-py, and cached keys.

May import: system/ and what is below it. Begin with redis.py.
"""
