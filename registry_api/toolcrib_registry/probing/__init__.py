"""Whether backends can be reached: which hosts and ports there are, and a connection to each now and then."""
