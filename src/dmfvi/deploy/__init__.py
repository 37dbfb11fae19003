"""A node on its own machine: its file of settings, the kinds of models it runs, its program."""
