"""The explorer: a page in the browser over the run store, served by ``polariscope serve``.

It computes nothing by itself: what it shows comes from the functions behind the command line, and what it starts are
commands of the command line in processes of their own.
"""
