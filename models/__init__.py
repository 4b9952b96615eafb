"""
The mathematics: torch, and no files but recipes and model folders.

Letters in names are the axes of a tensor: A anchors of one worker, B rows of a batch, C candidates, P right answers of
a row, K noise words, L rows of a lane, T tokens, D vector width, V vocabulary. `score_AC[i, j]` is the score of
candidate j for anchor i.
"""
