"""What an agent is made of, as ACS Inspect writes it down. Pure."""
