"""Send the notifications that the engine writes: beside each conductor, to the bus or a webhook."""
