"""Mixed models: coefficients that differ from group to group."""
