from delf import messages
from delf.messages import ImagePart, Message, TextPart, Usage
from delf.types import ISOLATION_ORDER, isolation_rank


def test_message_text_joins_its_text_parts():
    message = Message("user", (TextPart("a"), ImagePart(b"x", "image/png"), TextPart("b")))
    assert message.text == "ab"


def test_message_constructors_set_the_role():
    image = ImagePart(b"x", "image/png")
    assert messages.system("s") == Message("system", (TextPart("s"),))
    assert messages.user("u", [image]) == Message("user", (TextPart("u"), image))
    assert messages.assistant("a").role == "assistant"


def test_message_holds_calls_and_results():
    call = messages.ToolCall(id="1", name="add", arguments="{}")
    assert messages.assistant("", [call]) == Message("assistant", (call,))
    assert messages.assistant("so", [call]).text == "so"
    result = messages.ToolResult(id="1", name="add", text="3")
    assert messages.results([result]) == Message("user", (result,))


def test_usages_can_be_added():
    total = Usage(input_tokens=1, cached_tokens=1, output_tokens=2) + Usage(input_tokens=10)
    assert total == Usage(input_tokens=11, cached_tokens=1, output_tokens=2)
    assert total.total_tokens == 13


def test_isolation_levels_are_ordered():
    assert [isolation_rank(level) for level in ISOLATION_ORDER] == [0, 1, 2, 3]
    assert isolation_rank("process") < isolation_rank("container") < isolation_rank("vm")
