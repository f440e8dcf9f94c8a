"""All scores of a set of rows at once, fitted once on the reference: raw, with temperature, and the estimator's own."""

import warnings

import gdscore

__all__ = ["DIRECT", "Panel", "published_scores"]

TRANSPORT_ROWS = 4000
DIRECT = ("confscore", "doc", "atc", "cot", "cott", "agreescore")
warnings.simplefilter("ignore", gdscore.GdscoreWarning)


def options_of(name, **wanted):
    known = gdscore.create_score(name).options
    options = {key: value for key, value in wanted.items() if key in known}
    return options | ({"k": TRANSPORT_ROWS} if "k" in known else {})


def published_scores():
    """Every score as its authors' code computes it, by name."""
    names = [name for name in gdscore.list_scores() if name != "projnorm"]
    return {name: options_of(name, variant="published") for name in names}


class Panel:
    """Scores of any set against one labelled reference, in columns.

    Plain names are the scores as `gdscore.score` gives them; ``<name>@T`` are those of logits divided by the
    reference's temperature; ``soft`` is the soft disagreement of the second model.
    """

    def __init__(self, reference, *, scores=None, tempered=("confscore", "doc", "atc", "cot", "cott")):
        names = [name for name in gdscore.list_scores() if name != "projnorm"]
        chosen = {name: options_of(name) for name in names} if scores is None else scores
        self.temperature = gdscore.fit_temperature(reference)
        cooled = reference.with_temperature(self.temperature)
        self.plain = {name: self._fitted(name, options, reference) for name, options in chosen.items()}
        self.tempered = {f"{name}@T": self._fitted(name, options_of(name), cooled) for name in tempered}
        self.plain["soft"] = self._fitted("agreescore", {"soft": True}, reference)

    @staticmethod
    def _fitted(name, options, source):
        score = gdscore.create_score(name, **options)
        return score.fit(source) if score.reference_inputs else score

    def measure(self, outputs):
        """Column → value, for the columns that the outputs have what is needed for; NaN where a score refuses a set."""
        found = {}
        cooled = outputs.with_temperature(self.temperature)
        for scores, given in ((self.plain, outputs), (self.tempered, cooled)):
            for column, score in scores.items():
                if score.inputs <= outputs.has:
                    try:
                        found[column] = score.reset().update(given).compute()
                    except gdscore.GdscoreError:
                        found[column] = float("nan")
        return found
