"""The benchmark: Blueque and its peers in turn, on one Redis, in one run. `bin/bench` runs it.

main      arguments; runs the cases, writes the page
cases     what is measured: producing, working, waiting, telling, looking, backlog,
    recurring
systems   Blueque and its peers: how each is installed and its workers started; peers/ has a driver
    for each
stage     the Redis, the programs, the ledger of what has run; load, rounds, raw, crowd are what the
cases use
report    the page, from the numbers; plots draws its pictures
against   bin/bench --against: this checkout beside another commit; sides, comparing, cpu are for it
"""
