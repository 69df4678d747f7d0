"""Server 1: it responds to devices and to server 0, and makes no decisions."""
