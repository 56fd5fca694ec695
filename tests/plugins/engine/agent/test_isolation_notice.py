"""Tests of the notice that scripts have only weak isolation."""


def test_isolation_notice_is_reported_once(make_agent, scripted_model):
    scripted_model.writes(*["print(1)"] * 3)
    agent = make_agent(sandbox="auto")
    message = [agent.run("x").trace.warnings for _ in range(2)]
    message.append(make_agent(sandbox="auto").run("x").trace.warnings)
    assert [len(texts) for texts in message] == [1, 0, 0]
    assert "isolated by" in message[0][0]
