"""What the command line and the page share: what they load, and the orders that people give.

One row for each order for tasks says what a person reads before, and how it is done.
May import: client and documents, and what is below them. Begin with orders.py.
"""
