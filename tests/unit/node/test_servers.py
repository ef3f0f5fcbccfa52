"""What is saved of HAProxy's servers for its next process."""

from __future__ import annotations

from sparkfleet.node.servers import without_addresses

NAMES = "be_id be_name srv_name srv_addr srv_admin_state srv_check_port srv_check_addr"
HEAD = f"1\n# {NAMES} srv_agent_addr srv_agent_port\n"


def test_the_drain_is_kept_and_the_place_of_the_agent_is_not() -> None:
    """HAProxy takes an agent's saved address before the one that the configuration says."""
    saved = without_addresses(f"{HEAD}3 llm spark-2 10.0.0.2 8 9 10.0.0.3 10.0.0.2 18000\n")
    assert saved == f"{HEAD}3 llm spark-2 10.0.0.2 8 0 - - 0\n"


def test_a_form_unknown_here_stays_as_it_is() -> None:
    for text in ("1\n", f"{HEAD}3 llm spark-2\n", "1\n3 llm spark-2 10.0.0.2 8 0 - - 0\n"):
        assert without_addresses(text) == text
