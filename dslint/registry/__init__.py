"""Which rules there are, and which are meant: selection, plug-ins, a policy."""
