"""Apply plans on hosts, side by side, and take set-up back."""
