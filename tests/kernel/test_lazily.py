"""What is imported when it is first used is there for a child of a fork as well, whenever that was forked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SLOW = """
import threading, time
import program
program.begun.set()
time.sleep(0.5)
name = "whole"
"""
PROGRAM = """
import os, sys, threading
sys.modules["program"] = sys.modules["__main__"]
import veredus.client.loops
from veredus.kernel.lazily import import_whole

begun = threading.Event()
if __name__ == "__main__":
    threading.Thread(target=import_whole, args=("slow_to_import",), daemon=True).start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(import_whole("slow_to_import").name != "whole")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_forks_when_no_thread_is_in_the_middle_of_an_import(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    (tmp_path / "main.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(tmp_path / "main.py")], timeout=30, check=False)
    assert done.returncode == 0
