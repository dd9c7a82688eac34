"""Runs a command and interrupts it as timeout(1) does, twice at once, when it has printed a line."""

import signal
import subprocess
import sys
import time

signal.signal(signal.SIGINT, signal.default_int_handler)  # lit ignores it, and so would the command
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(process.stdout.readline(), end="")
process.send_signal(signal.SIGINT)
time.sleep(0.01)  # so that the first one is not pending still
process.send_signal(signal.SIGINT)
try:
    print(process.communicate(timeout=60)[0], end="")
except subprocess.TimeoutExpired:
    process.kill()
    sys.exit("it is not interrupted")
sys.exit(process.returncode if process.returncode >= 0 else 128 - process.returncode)
