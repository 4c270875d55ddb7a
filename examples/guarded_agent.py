"""A plain agent loop under a Guardian: python examples/guarded_agent.py http://127.0.0.1:8080/acs KEY_FILE TEXT"""

import shlex
import subprocess
import sys

from turnkeeper.client import ClientSettings, HttpTransport, Identity, PostureRules, StepDenied, SyncGuardianClient


def shell(command: str) -> str:
    return subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=60, check=False).stdout


def think(seen: list[str]) -> tuple[str, str]:  # your model goes here
    return ("shell", "echo 42") if len(seen) == 1 else ("answer", f"{seen[0]}: {seen[-1].strip()}")


url, key_file, text = sys.argv[1:]
settings = ClientSettings(posture=PostureRules(startup="refuse"))
client = SyncGuardianClient(HttpTransport(url), Identity.from_file("example", key_file), settings=settings)
with client as guardian, guardian.session() as session, session.turn() as turn:
    seen = [turn.user_message(text)]
    while (step := think(seen))[0] == "shell":
        try:
            seen.append(str(turn.call_tool("shell", {"command": step[1]}, shell)))
        except StepDenied as denied:
            seen.append(f"not allowed: {denied.message}")
    print(turn.agent_response(step[1]))
