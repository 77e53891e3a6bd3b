"""Sending notifications: beside each conductor, to the bus or a webhook. What is sent is written by the engine."""
