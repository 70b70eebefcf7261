"""Know and reach hosts: inventory, SSH, facts, many at once."""
