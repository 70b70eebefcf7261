"""Decide, with values in and values out; ships to hosts: standard library, Python 3.8, touches nothing."""
