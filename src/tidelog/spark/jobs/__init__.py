"""Jobs over whole log directories, on a Spark cluster: `tidelog spark JOB`.

    verify    what `tidelog fsck` finds, by many machines
    diff      what `tidelog diff` finds
    profile   what is in the topics, and what could be better: a report with plots
    compact   `tidelog compact`, a partition a task
    export    records into any format that Spark writes
    load      a table of any format that Spark reads, into segments

Each is a function that takes a session and gives back plain values. A walk: session.py gives the session, a job cuts
its work into tasks on the driver, tasks.py has them run and watched, and the driver puts the answers together. Nothing
that was read crosses to the JVM but what is left of it when a task has counted.
"""
