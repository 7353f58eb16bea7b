"""Other versions of Bridle as columns of an evaluation: each trial of a column runs in a process of its own Bridle.

columns.py      the versions that a suite or the command names, and the processes that run their trials
launch.py       started by the other Python: describes its Bridle, or runs trials; needs no Bridle of ours
worker.py       the side in the other process
peer.py         the protocol: calls and answers in lines of JSON, in both directions
piped_store.py  the store of the evaluation, as the other process sees it
"""
