"""`toolcrib approvals`: what is shown of a tool that needs approval (`shown`), and where that is read and written."""
