"""The hook's own process inside a box: a report in, the runner's answer out, and a block for everything else.

Standard library only, and run without the rest of the package: an agent that calls many tools starts it as often.
"""

import json
import os
import socket
import sys

ADDRESS = "\0turnkeeper-hooks"
"""In the box's own network namespace, and without a file that could be put aside."""
MAX_REPORT_BYTES = 8 * 1024 * 1024
MAX_ANSWER_BYTES = 8 * 1024 * 1024
BLOCKED_EXIT = 2


def ask(report: bytes, address: str = ADDRESS) -> bytes:
    """The runner's answer to a report. Raises `OSError`."""
    with socket.socket(socket.AF_UNIX) as runner:
        runner.connect(address)
        runner.sendall(report)
        runner.shutdown(socket.SHUT_WR)
        answer = b""
        while part := runner.recv(65536):
            answer += part
            if len(answer) > MAX_ANSWER_BYTES:
                raise OSError("the answer is too long")
        return answer


def main(address: str = ADDRESS) -> int:
    """The exit code, 0 or 2."""
    try:
        report = sys.stdin.buffer.read(MAX_REPORT_BYTES + 1)
        if len(report) > MAX_REPORT_BYTES:
            raise ValueError("the report is too long")  # noqa: TRY301  the one place where all failures end
        answer = json.loads(ask(report, address))
        code = int(answer["exit_code"])
        said, complaint = str(answer["stdout"]), str(answer["stderr"])
    except Exception as error:  # noqa: BLE001  whatever it is: a client takes it for consent unless it ends in a block
        sys.stderr.write(f"turnkeeper hook: {type(error).__name__}: {error}\n")
        return BLOCKED_EXIT
    sys.stderr.write(complaint)
    if said:
        os.write(1, said.encode())
    return code if code == 0 else BLOCKED_EXIT


if __name__ == "__main__":
    sys.exit(main())
