"""The `secemb` command line: all of Typer is here; each command imports what it needs when it is called."""
