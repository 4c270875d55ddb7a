"""Policies: which facts a rule sees, what the rules say, and the engines that evaluate them."""
