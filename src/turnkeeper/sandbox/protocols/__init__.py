"""What a box may say to a model and what comes back, per protocol: pure checks over bytes and objects, no network."""
