# Fills an LMDB file, or looks keys up at random and says every second how many.
import os
import random
import sys
import time

import lmdb

KEYS = 300_000
path, mode = sys.argv[1:]
if mode == "fill":
    environment = lmdb.open(path, map_size=4 << 30, sync=False, writemap=True)
    for start in range(0, KEYS, 10_000):
        with environment.begin(write=True) as transaction:
            for key in range(start, start + 10_000):
                transaction.put(b"%016d" % key, os.urandom(3000), append=True)
    environment.sync(True)
else:
    environment = lmdb.open(path, map_size=4 << 30, readonly=True, lock=False)
    keys = random.Random(1)
    with environment.begin() as transaction:
        while True:
            count, until = 0, time.monotonic() + 1
            while time.monotonic() < until:
                transaction.get(b"%016d" % keys.randrange(KEYS))
                count += 1
            print(count, flush=True)
