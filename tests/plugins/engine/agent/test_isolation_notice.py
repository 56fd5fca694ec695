"""The notice that scripts are isolated by little."""


def test_notice_on_isolation_is_not_reported_at_each_run(make_agent, scripted_model):
    scripted_model.writes(*["print(1)"] * 3)
    agent = make_agent(sandbox="auto")
    message = [agent.run("x").trace.warnings for _ in range(2)]
    message.append(make_agent(sandbox="auto").run("x").trace.warnings)
    assert [len(texts) for texts in message] == [1, 0, 0]
    assert "isolated by" in message[0][0]
