"""Messages show taco-launch as the submitter typed it, and never as another command."""

import pytest

from taco_launch.agent.messages import notify


@pytest.mark.parametrize("text", ["taco-launch -i lab:m", "taco-launch -i '/a b/hosts.yaml'"])
def test_an_inventory_is_kept(text: str) -> None:
    assert notify._typed(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rm -rf /;",
        "taco-launch -i hosts.yaml; rm -rf / #",
        "taco-launch -i $(reboot)",
        "taco-launch -i 'unclosed",
        "taco-launch -i a\nb",
        f"taco-launch -i /{'x' * 5000}",
        "taco-launch -x A=1 -i hosts.yaml",
    ],
)
def test_another_command_is_not(text: str) -> None:
    assert notify._typed(text) == "taco-launch"
