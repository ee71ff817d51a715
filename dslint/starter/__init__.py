"""A config to start from: `choice` decides how far to divide and what to offload, `contents` writes it down with a reason for every value,
`text` makes a file of it.
"""
