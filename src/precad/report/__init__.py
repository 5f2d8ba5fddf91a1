"""What people see of a run: one page, in a file or live.

``run`` reads a folder; ``figures`` derives what the files do not say, and ``participation`` who took part; ``charts``
places curves in pictures; ``page`` fills ``templates/`` with all of it; ``live`` serves the page while the run goes on.
``pictures`` are PNG, for whoever has matplotlib.
"""
