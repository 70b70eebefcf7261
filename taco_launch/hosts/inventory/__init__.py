"""Read an inventory or a hostfile into values, with all defaults filled in."""

VARIABLE = "TACO_LAUNCH_INVENTORY"
