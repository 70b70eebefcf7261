"""Recognise known failures in logs, one table for each program that prints them."""
