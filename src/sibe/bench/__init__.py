"""`sibe bench`: how fast this machine trains, against the reference and against its own limits."""
