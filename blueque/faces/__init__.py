"""What the command line and the page share: what they load, and the orders of people.

One row for each order for tasks has the text to confirm, and how it is done. May import: client and
documents, and what is below them. Begin with orders.py.
"""
