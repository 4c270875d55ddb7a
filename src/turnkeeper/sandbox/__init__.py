"""Boxes: where the agent's loop and its tools run, and what the worker may say to them.

`protocol` is the language spoken over a loop box's stdio and the only module of this package that is also inside
the box. `boxes` has the ports (drivers, boxes, limits, errors); `bwrap` and `unsafe_none` are the drivers;
`toolbox_agent` is the program inside the tool box; `tools` describes the four tools to a model.

Nothing here decides whether a step is allowed, and nothing here believes what a box says about anything but its
own text. Imports the floor only.
"""
