"""Compare a run with its plan, by NCCL's own log and by what is observed.

agent/guard/rank_view.py sees the ranks (environment, connections, libraries); agent/supervisor/verification.py reads what
NCCL wrote into their logs, and calls `compare.verify`.
"""
