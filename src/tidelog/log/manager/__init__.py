"""All logs of a broker, over several roots.

log_manager      the door: get, create, delete, move, truncate, tick, close
log_root         one root: its lock, identity, checkpoints and logs; `root_set` has all of them
root_loading     opening what lies there, in slices; `log_directories` says what a name means
log_changes      what happens to logs as a whole, with the checkpoints kept true
checks           what is refused at the door
background       retention, flushes and checkpoints, by the clock
"""
