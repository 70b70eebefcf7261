"""A small budget of the gate's time."""

TEXT = """
[steps]
fast = 100
[fast]
workers = 2
slow = ["core/test_x.py::test_slow"]
[fast.modules]
"core/" = {seconds = 0, extended = 9, covers = ["core/lifecycle/state.py"]}
[docs]
workers = 1
[docs.modules]
[e2e]
workers = 2
[e2e.modules]
"e2e/test_a.py" = {seconds = 20, extended = 5, group = "one", covers = ["agent"], gate = ["test_one", "test_two[a"]}
"e2e/test_b.py" = {seconds = 400, extended = 0, group = "one", covers = []}
"e2e/test_c.py" = {seconds = 0, extended = 100, covers = ["cli"]}
[lab]
workers = 2
[lab.modules]
"lab/test_d.py" = {seconds = 180, extended = 0, covers = ["setup"], gate = ["test_"]}
"""
