"""The inventories that are shipped, as data of the package `taco_launch.hosts.inventory.shipped` (setup.cfg maps it here)."""
