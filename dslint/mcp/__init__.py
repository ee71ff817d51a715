"""A server of the Model Context Protocol: the commands of dslint as tools for coding assistants. Only this package imports `mcp`.

Each call runs a command in a child process (`dslint.mcp.child`), which opens no file outside the given folders, writes none and starts no
program. So a tool answers as the command line does, and a file that takes too long costs one call.
"""
