"""What a monitor is told of turns: the figures of `/metrics`. Spans and OCSF are not built yet."""
