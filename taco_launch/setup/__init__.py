"""Set hosts up: plan from facts and the inventory, apply, prove.

To add a stage, write a file of its name with a STAGE (stages/).
"""
