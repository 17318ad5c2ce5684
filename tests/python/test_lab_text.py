# SPDX-License-Identifier: Apache-2.0
"""Text as tokens: what is shared stays shared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from limpet.lab import text

TEXT = st.text(max_size=60)


def common(one: bytes, other: bytes) -> int:
    """How many tokens two sequences begin with alike."""
    pairs = zip(text.ids(one), text.ids(other), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)) // 4)


@given(TEXT, TEXT)
def test_a_text_that_grows_keeps_all_tokens_but_its_last(begin: str, more: str) -> None:
    kept = common(text.tokens(begin), text.tokens(begin + more))
    assert kept >= len(begin.encode("utf-8", "replace")) // 4


@given(TEXT, TEXT)
def test_different_texts_are_different_tokens(one: str, other: str) -> None:
    same = text.tokens(one) == text.tokens(other)
    assert same == (
        one.encode("utf-8", "replace").rstrip(b"\0")
        == other.encode("utf-8", "replace").rstrip(b"\0")
    )


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_tokens_are_text_again_and_so_are_their_ids(given_text: str) -> None:
    data = text.tokens(given_text)
    assert text.text(data) == given_text
    assert text.from_ids(text.ids(data)) == data
    assert text.count(data) == -(-len(given_text.encode()) // 4)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4), st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_no_message_can_imitate_another(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    def rendered(messages: list[tuple[str, str]]) -> bytes:
        return b"".join(text.message(role, content) for role, content in messages)

    def bare(messages: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
        return [(text.tokens(role), text.tokens(content)) for role, content in messages]

    assert (rendered(one) == rendered(other)) == (bare(one) == bare(other))


@given(st.binary(max_size=40), st.integers(0, 50), st.integers(0, 50))
def test_a_shorter_answer_is_the_beginning_of_a_longer_one(prompt: bytes, a: int, b: int) -> None:
    short, long = sorted((text.answer(prompt, a), text.answer(prompt, b)), key=len)
    assert long.startswith(short)
    assert text.count(text.answer(prompt, a)) == a
    assert 64 <= text.length(prompt) <= 512


def test_what_is_no_text_counts_and_marks_for_caches_do_not() -> None:
    block = {"type": "text", "text": "hello"}
    assert text.flat([block, {"type": "text", "text": " you"}]) == "hello you"
    assert text.flat([block | {"cache_control": {"type": "ephemeral"}}]) == "hello"
    image = {"type": "image", "source": {"data": "AAAA"}}
    marked = image | {"cache_control": {"type": "ephemeral"}}
    assert text.flat([image]) == text.flat([marked]) != text.flat([image | {"source": {}}])
    assert text.flat(None) == text.flat([]) == ""
    assert text.message("assistant", None, tool_calls=[{"id": "1"}]) != text.message(
        "assistant", None
    )
    assert text.message("assistant", "", refusal=None) == text.message("assistant", None)
