"""`sibe bench`: how fast this machine trains, against the usual code and against its own limits."""
