"""How much may be called by a grant: whom a call is charged to, and what happens where there is no room."""
