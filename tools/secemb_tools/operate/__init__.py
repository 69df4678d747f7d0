"""What an operator types: set a server up, pair it with the other one, check it, run it.

Exit codes: 0 done; 1 refused or found faulty, and the output names the fix; 2 the command was written wrongly.
"""
