"""What requests must look like, per microversion. Data, named after the file that serves it."""
