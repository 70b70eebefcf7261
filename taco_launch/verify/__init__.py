"""Whether what runs is what was planned: NCCL's own log read, and a RunPlan compared with what is seen. Pure.

agent/guard/rank_view.py sees the ranks (environment, connections, libraries); agent/supervisor/verification.py reads what
NCCL wrote into their logs, and calls `compare.verify`.
"""
