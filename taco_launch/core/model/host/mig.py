"""How the name of a GPU's model ends that is divided into instances."""

MIG = " MIG"
