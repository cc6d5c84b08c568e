"""Who may do what, why, and what a change would change. Every verdict is the authorizer's."""
