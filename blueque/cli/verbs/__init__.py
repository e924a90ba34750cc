"""The verbs of `blueque`, one module for each; closely related verbs share one.

May import: everything but demo. Begin with main.py in cli/, which names the module of each verb.
"""
