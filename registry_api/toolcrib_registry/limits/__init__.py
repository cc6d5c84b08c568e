"""How much may be in progress: limits of grants, whom a call is charged to, and room for large requests."""
