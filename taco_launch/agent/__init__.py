"""The agent: standard library only, Python 3.8 or newer, shipped as one zipapp to where jobs run."""
