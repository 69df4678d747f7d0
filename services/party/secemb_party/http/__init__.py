"""The HTTP interface that both servers share."""
