"""Webhooks (contract 12): events sent to an app's own address, signed, again and again until they are taken."""
