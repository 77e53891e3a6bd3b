"""Choosing a host: snapshot → filters → weighers → a decision that says why. It proposes; the claim decides."""
