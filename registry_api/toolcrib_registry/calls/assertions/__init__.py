"""Call assertions: a short-lived JWT a call, by which a backend knows that the registry sent it, and for whom."""
