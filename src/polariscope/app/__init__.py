"""The explorer: a page in the browser over the run store, served by ``polariscope serve``.

It computes nothing by itself: it shows results of the functions behind the command line, and starts commands of the
command line in processes of their own.
"""
