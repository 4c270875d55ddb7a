"""The turn API from an app's side (contract 2, 9 to 13). `turnkeeper.client` is its public door."""
