"""What happened, as apps read it: one envelope, one catalogue of closed event types, cursors. Pure."""
