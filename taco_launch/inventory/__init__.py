"""What the user wrote -> model values; nothing is imported here, so that `names` costs neither pydantic nor yaml."""

VARIABLE = "TACO_LAUNCH_INVENTORY"
