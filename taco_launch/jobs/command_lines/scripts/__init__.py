"""Follow what a script sets, tests and redirects beside its launchers, and name the commands that are none."""
