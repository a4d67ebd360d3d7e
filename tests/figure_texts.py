"""What a figure says."""

from matplotlib.text import Text


def words_of(figure):
    """All texts of a figure in one, without breaks of lines."""
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())
