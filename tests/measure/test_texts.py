from enginesmith.measure.texts import TOPICS, calibration_text, evaluation_text


def test_the_parts_share_no_paragraph() -> None:
    calibration, evaluation = (
        {" ".join(p.split()) for p in text.split("\n\n")} for text in (calibration_text(), evaluation_text())
    )
    assert not calibration & evaluation


def test_no_paragraph_comes_twice() -> None:
    paragraphs = [" ".join(p.split()) for p in evaluation_text().split("\n\n")]
    assert len(paragraphs) == len(set(paragraphs))


def test_the_parts_are_alike_and_long_enough() -> None:
    sizes = [len(calibration_text()), len(evaluation_text())]
    assert min(sizes) > 80_000
    assert max(sizes) < 1.1 * min(sizes)


def test_the_text_is_named_with_its_python_version() -> None:
    assert TOPICS.startswith("pydoc topics of Python 3.")
