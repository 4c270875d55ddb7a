"""A Guardian in front of coding agents that run outside any box: what their hooks report, asked before it happens.

Each hook is a short process of its own. It answers for a block whenever it cannot bring a decision; what it must never
do is let a call go on because something of ours was broken, slow or gone. It advises an agent that runs as the same
user and could take the hook away: a boundary is what the boxes of the platform are for.
"""
