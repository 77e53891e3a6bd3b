"""The simulated cloud itself: its processes, databases, networks and stock, its records, and how it comes to rest."""
