"""The engine: runs, resumes, cancels and undoes operations. What an operation does is in operations/."""
