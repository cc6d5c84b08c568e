"""What is counted, and the budgets of series."""
