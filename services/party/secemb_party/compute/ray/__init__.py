"""The engine on Ray: workers on any number of machines, each with a range of slots, and a process that reaches them."""
