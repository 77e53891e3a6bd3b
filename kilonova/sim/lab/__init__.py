"""The simulated cloud itself: its processes, databases, networks and stock, what is recorded, how it comes to rest."""
