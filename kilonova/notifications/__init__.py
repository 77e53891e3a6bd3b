"""Sending notifications: beside each conductor, to the bus or a webhook. The engine writes them."""
