"""Choose a host: snapshot → filters → weighers → a decision with reasons. It proposes; the claim decides."""
