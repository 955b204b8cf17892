"""One thread a test process: two processes with two threads each are slower on two cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
