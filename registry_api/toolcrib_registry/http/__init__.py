"""What HTTP says and takes: the apps, their edge, requests, problem documents, routes, and the sockets below."""
